#include "engine/tensor/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

// From here on memory is mapped by itself. (Less is the allocator's, which sanitizers watch.)
constexpr size_t kMappedBytes = size_t{64} << 10;
constexpr size_t kAlignment = 64;

absl::Status OutOfMemory(size_t bytes, int error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("cannot allocate ", bytes, " bytes: ", std::strerror(error)));
}

}  // namespace

absl::StatusOr<Buffer> Buffer::AllocateHost(size_t bytes) {
  if (bytes == 0) return Buffer();
  if (bytes < kMappedBytes) {
    void* data = nullptr;
    if (const int error = posix_memalign(&data, kAlignment, bytes); error != 0) {
      return OutOfMemory(bytes, error);
    }
    std::memset(data, 0, bytes);
    return Buffer(data, bytes, [](void* p, size_t) { std::free(p); });
  }
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return OutOfMemory(bytes, errno);
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
