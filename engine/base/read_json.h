// ReadJson: nlohmann's parser, with checkpoints (checkpoint.h).
//
//   class Builder : public nlohmann::json_sax<nlohmann::json> { ... };
//   Builder builder;
//   const bool valid = ReadJson(text, &builder);
//
// Where the thread's scope is interrupted the text ends, and `builder` is told of a syntax error.
#ifndef LM_ENGINE_BASE_READ_JSON_H_
#define LM_ENGINE_BASE_READ_JSON_H_

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>

#include "absl/strings/string_view.h"
#include "engine/base/checkpoint.h"

namespace lm {

// A place in a text. What is behind the next checkpoint is not seen before that is passed.
class CheckedPlace {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CheckedPlace(const char* at, const char* end) : at_(at), next_(at), end_(end) {}

  reference operator*() const { return *at_; }
  CheckedPlace& operator++() {
    ++at_;
    return *this;
  }
  // REQUIRES: the other is the text's end.
  bool operator==(const CheckedPlace&) const { return at_ == next_ && Ends(); }

 private:
  static constexpr std::ptrdiff_t kCheckedBytes = 1 << 14;

  bool Ends() const {
    if (at_ == end_ || Interrupted()) return true;
    next_ = at_ + std::min(kCheckedBytes, end_ - at_);
    return false;
  }

  const char* at_;
  mutable const char* next_;  // moved by the question whether the text ends here
  const char* end_;
};

template <typename Events>
bool ReadJson(absl::string_view text, Events* events) {
  const char* const end = text.data() + text.size();
  return nlohmann::json::sax_parse(CheckedPlace(text.data(), end), CheckedPlace(end, end), events);
}

}  // namespace lm

#endif  // LM_ENGINE_BASE_READ_JSON_H_
