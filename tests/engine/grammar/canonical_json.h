// The canonical text of a JSON value, as grammar.h describes it, by a reader and writer that share
// nothing with the engine.
#ifndef LM_TESTS_ENGINE_GRAMMAR_CANONICAL_JSON_H_
#define LM_TESTS_ENGINE_GRAMMAR_CANONICAL_JSON_H_

#include <string>

namespace lm {

// Members keep their order. Empty where the text is no JSON.
std::string CanonicalJson(const std::string& text);

}  // namespace lm

#endif  // LM_TESTS_ENGINE_GRAMMAR_CANONICAL_JSON_H_
