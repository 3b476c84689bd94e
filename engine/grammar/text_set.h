// A regular set of texts, as a deterministic automaton over bytes that can be intersected and
// complemented: several patterns for one string, lengths beside a pattern, `not`, keys that match
// one pattern and not another.
//
//   ASSIGN_OR_RETURN(TextSet words, TextSet::OfRegex("^[a-z]+$"));
//   ASSIGN_OR_RETURN(words, words.OfLength(2, 4));
//   ASSIGN_OR_RETURN(words, words.Minus(TextSet::Of({"if", "else"})));
//   Fragment fragment = words.Write(TextForm::kJsonString, &builder);
//
// All texts are valid UTF-8 without U+0000.
#ifndef LM_ENGINE_GRAMMAR_TEXT_SET_H_
#define LM_ENGINE_GRAMMAR_TEXT_SET_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/grammar/automaton.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/text_form.h"

namespace lm {

// A value type.
class TextSet {
 public:
  // More are not made: InvalidArgument, "too large".
  static constexpr int32_t kMaxStates = 20'000;

  static absl::StatusOr<TextSet> All();
  static absl::StatusOr<TextSet> Of(std::vector<std::string> texts);
  // The strings that a JSON Schema's `pattern` finds itself in. Errors: as ParseRegex.
  static absl::StatusOr<TextSet> OfPattern(absl::string_view regex);
  // The texts that are matched as a whole.
  static absl::StatusOr<TextSet> OfRegex(absl::string_view regex);
  // The texts of `fragment`, which `builder` has made and is given up with.
  static absl::StatusOr<TextSet> OfFragment(Fragment fragment, AutomatonBuilder builder);
  absl::StatusOr<TextSet> Intersect(const TextSet& other) const;
  absl::StatusOr<TextSet> Minus(const TextSet& other) const;
  // The texts of `min` to `max` characters. Where those are too large a set: the texts of up to as
  // many as kMaxStates hold, unless there are none of `min` or more among them.
  absl::StatusOr<TextSet> OfLength(int64_t min, std::optional<int64_t> max) const;

  bool empty() const { return accepts_.empty(); }
  size_t bytes() const {
    return sizeof(*this) + next_.size() * sizeof(int32_t) + accepts_.size() / 8;
  }
  bool Contains(absl::string_view text) const;
  // REQUIRES: !empty().
  Fragment Write(TextForm form, AutomatonBuilder* builder) const;

 private:
  static constexpr int32_t kNowhere = -1;

  TextSet() = default;
  int32_t num_states() const { return static_cast<int32_t>(accepts_.size()); }
  int32_t Next(int32_t state, uint8_t byte) const {
    return next_[static_cast<size_t>(state) * num_classes_ + class_of_byte_[byte]];
  }
  template <typename Accepts>
  absl::StatusOr<TextSet> Product(const TextSet& other, bool needs_other, Accepts accepts) const;
  // Without states that lead to no end.
  void Trim();

  // State 0 is the start. None at all: the empty set.
  std::array<uint8_t, 256> class_of_byte_{};
  int num_classes_ = 1;
  std::vector<int32_t> next_;  // (state, class) -> state or kNowhere
  std::vector<bool> accepts_;  // by state
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_TEXT_SET_H_
