// When two answers say the same, as far as one can tell without understanding them.
#ifndef LM_ENGINE_TEXT_SAME_WORDS_H_
#define LM_ENGINE_TEXT_SAME_WORDS_H_

#include <string>

#include "absl/strings/string_view.h"

namespace lm {

// The words of a text: in lower case, a space between each two, and nothing around them but letters
// and digits ("  **Paris.** " is "paris", "-5 °C" keeps its sign). Of a text without any, the text
// without white space around it.
std::string WordsOf(absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_TEXT_SAME_WORDS_H_
