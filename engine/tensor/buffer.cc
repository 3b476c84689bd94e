#include "engine/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {

absl::StatusOr<Buffer> Buffer::AllocateHost(size_t bytes) {
  if (bytes == 0) return Buffer();
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot allocate ", bytes, " bytes: ", std::strerror(errno)));
  }
  // Weights and KV are read front to back many times: fewer TLB misses with huge pages.
  madvise(data, bytes, MADV_HUGEPAGE);
  return Buffer(data, bytes, [](void* p, size_t n) { munmap(p, n); });
}

void CommitHost(absl::Span<char> memory) {
  constexpr int kPopulateWrite = 23;  // MADV_POPULATE_WRITE, since Linux 5.14
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory.data()) / page * page;
  const uintptr_t end = reinterpret_cast<uintptr_t>(memory.data()) + memory.size();
  madvise(reinterpret_cast<void*>(begin), end - begin, kPopulateWrite);
}

}  // namespace lm
