// Finds the tokens that are matched whole, before the tokenizer proper sees the text: control
// tokens in markup, user-defined ones everywhere, but for input those that look like markup.
#ifndef LM_ENGINE_TEXT_SPECIAL_TOKENS_H_
#define LM_ENGINE_TEXT_SPECIAL_TOKENS_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/checkpoint.h"
#include "engine/base/integer_map.h"
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
  // outside can take their place. The same holds of user-defined tokens that look like markup and
  // the `open` ranges.
  // REQUIRES: the ranges of each kind are in order, apart from each other and inside the text;
  // those of markup lie inside open ones.
  //
  // Each byte of the text costs as many steps along a name as the longest has bytes, at most thrice
  // for each kind of token: *num_steps, where given, is how many there were. An interrupted search
  // (base/checkpoint.h) stops, unfinished.
  std::vector<Match> Find(absl::string_view text, absl::Span<const Range> markup,
                          absl::Span<const Range> open, int64_t* num_steps = nullptr) const;
  // With all of the text open.
  std::vector<Match> Find(absl::string_view text, absl::Span<const Range> markup) const {
    const Range all = {0, text.size()};
    return Find(text, markup, absl::MakeConstSpan(&all, 1));
  }

 private:
  // A search for one class finds those before it too.
  enum Class : uint8_t { kUserDefined, kMarkupLike, kControl, kNumClasses };

  // Of one Find.
  class Steps {
   public:
    void Add(int64_t count) { count_ += count; }
    int64_t count() const { return count_; }
    bool Interrupted() {
      if (count_ < next_) return interrupted_;
      next_ = count_ + kUnchecked;
      return interrupted_ = lm::Interrupted();
    }

   private:
    static constexpr int64_t kUnchecked = 1 << 14;
    int64_t count_ = 0;
    int64_t next_ = kUnchecked;
    bool interrupted_ = false;
  };
  struct Name {
    size_t length = 0;  // 0: there is none
    int32_t id = -1;
  };

  void Insert(absl::string_view name, int32_t id);
  uint32_t Child(uint32_t node, uint8_t byte) const;
  // Adds the matches in `range` outside of those already in *matches, which are in it and stay in
  // order.
  void Add(absl::string_view text, Range range, Class most, std::vector<Match>* matches,
           Steps* steps) const;
  // Adds the tokens of class `wanted` in `ranges`, which no other token there can take the place
  // of.
  void AddOnly(absl::string_view text, absl::Span<const Range> ranges, Class wanted,
               std::vector<Match>* matches, Steps* steps) const;
  // The longest name at the beginning of `range` that does not go beyond it.
  Name Longest(absl::string_view text, Range range, Class most, Steps* steps) const;

  // Whether a name ends at `node` that is looked for.
  bool Counts(uint32_t node, Class most) const;

  // A trie over the names; node 0 is the root. Each node has the id of the name that ends there,
  // or -1.
  std::vector<int32_t> nodes_;
  std::array<uint32_t, 256> first_{};  // the root's children
  IntegerMap<uint32_t> children_;      // node << 8 | byte -> node
  std::vector<Class> classes_;         // by id; of those that have a name here
  std::vector<bool> strip_before_;
  std::vector<bool> strip_after_;
  std::array<bool, kNumClasses> has_{};  // whether there is a token of the class
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_SPECIAL_TOKENS_H_
