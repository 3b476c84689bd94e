// What the program's symbol table says of its kernels: their names, and their __shared__ variables,
// which are static ones here.
#ifndef LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_KERNEL_SYMBOLS_H_
#define LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_KERNEL_SYMBOLS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace lm::on_host {

struct SharedVariable {
  std::string name;
  uintptr_t begin, end;
};

struct KernelSymbols {
  std::string name;  // without namespaces and parameters
  std::vector<SharedVariable> shared;
};

// REQUIRES: the program has its symbols. A kernel that is not among them has no name.
KernelSymbols SymbolsOf(const void* kernel);

// Whether an address is of a variable of the program that can be written.
bool IsVariable(uintptr_t address);

// The file and line of a return address, by addr2line; "" where that does not know.
std::string LineOf(const void* return_address);

}  // namespace lm::on_host

#endif  // LM_TESTS_ENGINE_BACKEND_CUDA_ON_HOST_KERNEL_SYMBOLS_H_
