// What a fuzzer of this folder consists of: the target, which takes any bytes, and good inputs to
// start from. fuzz_main.cc turns the two into a program that runs anywhere, the same every time;
// with clang, -fsanitize=fuzzer links the target alone and brings its own main.
#ifndef LM_TESTS_FUZZ_FUZZ_TARGET_H_
#define LM_TESTS_FUZZ_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

// Returns 0. Whatever is wrong ends the process.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace lm {

// At least one.
std::vector<std::string> FuzzSeeds();

// What inputs are made of, to be put anywhere: keywords, signs. May be empty.
std::vector<std::string> FuzzWords();

}  // namespace lm

#endif  // LM_TESTS_FUZZ_FUZZ_TARGET_H_
