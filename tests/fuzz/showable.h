// What all fuzzers ask: what must hold, or the program ends, and what an error's text must be.
#ifndef LM_TESTS_FUZZ_SHOWABLE_H_
#define LM_TESTS_FUZZ_SHOWABLE_H_

#include <cstdlib>
#include <iostream>

#include "absl/status/status.h"
#include "engine/base/utf8.h"

namespace lm {

inline void Require(bool condition, const char* what) {
  if (condition) return;
  std::cerr << "broken: " << what << "\n";
  std::abort();
}

// A message can be shown as it is: a line of UTF-8 of sane length.
inline void RequireShowable(const absl::Status& status) {
  Require(!status.message().empty() && status.message().size() < 3000, "a message of sane length");
  Require(ValidUtf8Prefix(status.message()) == status.message().size(), "a message in UTF-8");
  for (unsigned char c : status.message()) Require(c >= ' ' && c != 0x7f, "a message in one line");
}

}  // namespace lm

#endif  // LM_TESTS_FUZZ_SHOWABLE_H_
