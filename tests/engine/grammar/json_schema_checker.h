// A JSON Schema validator that shares nothing with the engine: the judge of what a grammar
// generates. Knows the keywords that CompileJsonSchema supports; oneOf is a union here too.
#ifndef LM_TESTS_ENGINE_GRAMMAR_JSON_SCHEMA_CHECKER_H_
#define LM_TESTS_ENGINE_GRAMMAR_JSON_SCHEMA_CHECKER_H_

#include <nlohmann/json.hpp>
#include <string>

namespace lm {

// What is wrong with `text` as JSON valid against `schema`; empty if nothing is.
std::string CheckAgainstSchema(const nlohmann::json& schema, const std::string& text);

}  // namespace lm

#endif  // LM_TESTS_ENGINE_GRAMMAR_JSON_SCHEMA_CHECKER_H_
