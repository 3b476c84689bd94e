// Finds the tokens that are matched whole, before the tokenizer proper sees the text: control
// tokens in markup, user-defined ones everywhere.
#ifndef LM_ENGINE_TEXT_SPECIAL_TOKENS_H_
#define LM_ENGINE_TEXT_SPECIAL_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/text/vocabulary.h"

namespace lm {

// Longer tokens are looked for before shorter ones, in the whole text; equally long ones from left
// to right. Immutable; thread-safe.
class SpecialTokens {
 public:
  // Where a token is: [begin, end) of the text, with the whitespace that the token swallows.
  struct Match {
    size_t begin;
    size_t end;
    int32_t id;
  };
  struct Range {
    size_t begin;
    size_t end;
  };

  // No special token may be longer than this.
  static constexpr size_t kMaxBytes = 256;

  // REQUIRES: the vocabulary's control, unknown and user-defined names are at most kMaxBytes long.
  explicit SpecialTokens(const Vocabulary& vocabulary);

  // The matches in `text`, in order, without overlaps. Control and unknown tokens count only where
  // they lie inside one of the `markup` ranges, and there no user-defined token that begins or ends
  // outside can take their place.
  // REQUIRES: the ranges are in order, apart from each other and inside the text.
  std::vector<Match> Find(absl::string_view text, absl::Span<const Range> markup) const;

 private:
  using Lengths = std::array<bool, kMaxBytes + 1>;

  void Insert(absl::string_view name, int32_t id);
  uint32_t Child(uint32_t node, uint8_t byte) const;
  // Adds the matches in `range` outside of those already in *matches, which stay in order.
  void Add(absl::string_view text, Range range, bool controls, std::vector<Match>* matches) const;
  // Which lengths of names occur in `gap`; *unseen counts those that have not occurred yet, and
  // with none left there is no need to look on.
  void NoteLengths(absl::string_view text, Range gap, bool controls, Lengths* lengths,
                   int* unseen) const;
  void AddOfLength(absl::string_view text, Range gap, size_t length, bool controls,
                   std::vector<Match>* matches) const;

  // Whether a name ends at `node` that is looked for.
  bool Counts(uint32_t node, bool controls) const;

  // A trie over the names; node 0 is the root. Each node has the id of the name that ends there,
  // or -1.
  std::vector<int32_t> nodes_;
  std::array<uint32_t, 256> first_{};                 // the root's children
  absl::flat_hash_map<uint64_t, uint32_t> children_;  // node << 8 | byte -> node
  std::vector<bool> is_control_;                      // by id; unknown tokens too
  std::vector<bool> strip_before_;
  std::vector<bool> strip_after_;
  int num_lengths_ = 0;               // how many different ones the names have
  int num_user_defined_lengths_ = 0;  // ... those of user-defined tokens
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_SPECIAL_TOKENS_H_
