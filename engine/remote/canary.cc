#include "engine/remote/canary.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

constexpr int32_t kLeastTokens = 64;  // of the answer
constexpr char kWord[] = "zqx7413";  // nobody says it who is not made to

std::string Notation(Kind kind) {
  switch (kind) {
    case Kind::kChoices:
      return absl::StrCat("[\"", kWord, "\"]");
    case Kind::kGrammar:
      return absl::StrCat("root ::= \"", kWord, "\"");
    case Kind::kSchema:
      return absl::StrCat(R"({"type":"object","properties":{"word":{"type":"string","enum":[")",
                          kWord, R"("]}},"required":["word"],"additionalProperties":false})");
    default:
      return kWord;
  }
}

}  // namespace

RequestSpec CanaryOf(Kind kind, absl::string_view salt, int32_t max_tokens) {
  if (kind == Kind::kExtraction) kind = Kind::kSchema;
  RequestSpec spec{.text = R"([{"role":"user","content":"Say hello."}])",
                   .salt = std::string(salt)};
  spec.options.constraint = {kind, Notation(kind)};
  spec.options.max_tokens = std::max(max_tokens, kLeastTokens);
  spec.options.priority = Priority::kInteractive;
  return spec;
}

std::string CanaryAnswer(Kind kind) {
  return kind == Kind::kSchema ? absl::StrCat("{\"word\":\"", kWord, "\"}") : kWord;
}

}  // namespace lm
