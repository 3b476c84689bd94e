// MemberMemory: where each member of a TensorParallelBackend has what the ops are given.
//
// An allocation is one of each member's, all as large and used alike, and a pointer into it is one
// into the first member's. Or it has shares: then it is addresses that nobody reads, and of what is
// thought to be there each member has a part, where an offset is divided by the number of members.
#ifndef LM_ENGINE_BACKEND_TENSOR_PARALLEL_MEMBER_MEMORY_H_
#define LM_ENGINE_BACKEND_TENSOR_PARALLEL_MEMBER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "engine/tensor/buffer.h"

namespace lm {

class MemberMemory {
 public:
  // Notes that the bytes from `begin` on stand for these, one of each member.
  void Add(const void* begin, size_t bytes, int32_t shares, absl::Span<const Buffer> members);
  void Remove(const void* begin);

  // Of what was added, its end included: into how many shares it is divided (1: each member has all
  // of it), and where a member has it. Anything else is what it is, and whole.
  int32_t SharesOf(const void* data) const;
  void* At(const void* data, size_t member) const;

 private:
  struct Region {
    const char* begin;
    size_t bytes;
    int32_t shares;
    std::vector<char*> members;
  };
  const Region* Find(const void* data) const;  // null: it is none's

  std::map<const char*, Region> regions_;
};

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_TENSOR_PARALLEL_MEMBER_MEMORY_H_
