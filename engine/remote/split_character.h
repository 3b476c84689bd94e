// SplitCharacter: a character beyond U+FFFF of which an event ends with the first half of its JSON
// escape, "\ud83d", and one of the next begins with the other, "\ude00": neither is JSON by itself.
#ifndef LM_ENGINE_REMOTE_SPLIT_CHARACTER_H_
#define LM_ENGINE_REMOTE_SPLIT_CHARACTER_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lm {

class SplitCharacter {
 public:
  // The event without a first half at the end of a text, which is kept; and with the one that was,
  // before a second half at the beginning of a text.
  std::string Join(absl::string_view event);

 private:
  std::string half_;
};

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_SPLIT_CHARACTER_H_
