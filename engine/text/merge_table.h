// The merges of a BPE vocabulary (tokenizer.ggml.merges), by the tokens they join.
#ifndef LM_ENGINE_TEXT_MERGE_TABLE_H_
#define LM_ENGINE_TEXT_MERGE_TABLE_H_

#include "absl/status/statusor.h"
#include "engine/base/integer_map.h"
#include "engine/text/symbol_merger.h"
#include "engine/text/token_index.h"
#include "engine/text/vocabulary.h"

namespace lm {

class MergeTable {
 public:
  // InvalidArgument, naming it, for a merge that is not two texts with a space between them, and
  // where most are not of two tokens whose spellings together are a third. Such a one never runs,
  // nor does one that would take part in spelling a control token.
  static absl::StatusOr<MergeTable> Read(const Vocabulary& vocabulary, const TokenIndex& index);

  // Tells whether two tokens merge (neither does where it is -1), and how.
  bool Find(int32_t left, int32_t right, Merge* merge) const {
    const Merge* known = merges_.Find(Key(left, right));
    if (known == nullptr) return false;
    *merge = *known;
    return true;
  }

 private:
  static uint64_t Key(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }

  IntegerMap<Merge> merges_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_MERGE_TABLE_H_
