// Grammars of all four notations: any text is refused with a message that can be shown, or gives a
// grammar whose masks agree with what may be accepted.
#include <memory>
#include <string>
#include <vector>

#include "engine/base/random.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/grammar_matcher.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

// The first byte says which notation the rest is in.
absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const std::string& input) {
  const absl::string_view text = absl::string_view(input).substr(1);
  switch (input[0]) {
    case 'c': {
      const size_t half = text.size() / 2;
      return CompileChoices({text.substr(0, half), text.substr(half)});
    }
    case 'r':
      return CompileRegex(text);
    case 'g':
      return CompileGbnf(text);
    case 'e':
      return CompileExtractionSchema(text);
    default:
      return CompileJsonSchema(text);
  }
}

// End of generation, every byte, some words.
std::shared_ptr<const TokenTrie> Trie() {
  static const auto& trie = *[] {
    std::vector<std::string> tokens = {""};
    for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, byte));
    for (const char* word : {"ab", "the", " a", "\": ", "{\"", "é", "12", "]}"})
      tokens.push_back(word);
    std::vector<absl::string_view> bytes(tokens.begin(), tokens.end());
    return new std::shared_ptr<const TokenTrie>(*TokenTrie::Create(bytes, {0}));
  }();
  return trie;
}

void Walk(std::shared_ptr<const Grammar> grammar, size_t seed) {
  auto constraint = Constraint::Create(std::move(grammar), Trie(), /*cache_bytes=*/20000);
  if (!constraint.ok()) return RequireShowable(constraint.status());
  GrammarMatcher matcher(*constraint);
  std::vector<uint64_t> mask(Trie()->mask_words());
  for (size_t step = 0; step < 6 && !matcher.IsComplete(); ++step) {
    absl::Status status = matcher.FillMask(absl::MakeSpan(mask));
    if (status.code() == absl::StatusCode::kResourceExhausted) return RequireShowable(status);
    Require(status.ok(), "some token goes on");
    Require((mask[0] & 1) == matcher.CanEnd(), "the end is allowed where the text can end");
    const auto forced = matcher.ForcedBytes();
    if (!forced.ok()) return RequireShowable(forced.status());
    std::vector<int32_t> allowed;
    for (int32_t token = 1; token < Trie()->num_tokens(); ++token) {
      const bool is_allowed = mask[token / 64] >> (token % 64) & 1;
      if (is_allowed) allowed.push_back(token);
      // Trying all of them would take most of the time.
      if (RandomBits(seed, step * 1000 + token) % 16 != 0) continue;
      GrammarMatcher copy = matcher;
      status = copy.Accept(token);
      Require(status.code() == absl::StatusCode::kResourceExhausted || status.ok() == is_allowed,
              "the mask says what is accepted");
    }
    Require(!allowed.empty(), "a text that is not complete goes on");
    status = matcher.Accept(allowed[RandomBits(seed, step) % allowed.size()]);
    if (status.code() == absl::StatusCode::kResourceExhausted) return RequireShowable(status);
    Require(status.ok(), "an allowed token is accepted");
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      "cyesno",
      "r^[A-Z]{2}-\\d{1,3}(\\.(a|b)+?)*$",
      "r(?:\\u{1F600}|[^\\w\\s-]|é.){2,}x?",
      "r(?i)(^|,)\\p{Script=Greek}[\\p{L}\\d_]{0,3}(?-i:K|[^\\P{Lu}])(,|$)",
      "r(\\b\\w+\\b\\W?){1,3}(?s:.)\\B(?:a$|^b|\\z)*",
      "r^(?=.*\\d)(?!a|b$)\\w{2,4}|(?!x)(?s).",
      R"(s{"properties":{"a":{"pattern":"^(?!a)(?=.b).","minLength":1,"maxLength":4000},"b":{"items":
          {"enum":[0,1,2,3,4,5,6,7,8,9,10,11,12]},"uniqueItems":true,"minItems":2}}})",
      R"(s{"properties":{"a":{"pattern":"(^a|b$)|\\bc\\p{Lu}+","maxLength":5}}})",
      "groot ::= v\nv ::= \"[\" (v (\", \" v)*)? \"]\" | [^\\]\\n]{1,3} # c\n",
      "groot ::= a | b\na ::= \"x\\u00e9\" b?\nb ::= . | \"y\" a\n",
      R"(s{"type":"object","properties":{"a":{"type":"integer","minimum":-5,"maximum":120},
          "b":{"type":"string","maxLength":9},"c":{"enum":["x",1,null]}},"required":["b"]})",
      R"(s{"$defs":{"n":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"number",
          "exclusiveMaximum":2.5,"multipleOf":0.1}]},"maxItems":3}},"$ref":"#/$defs/n"})",
      R"(s{"allOf":[{"properties":{"k":{"format":"date-time"}}},{"additionalProperties":
          {"pattern":"^a+$","maxLength":4}}],"minProperties":1,"anyOf":[{"required":["k"]},{}]})",
      R"(s{"oneOf":[{"properties":{"k":{"const":"a"}},"required":["k"]},{"properties":{"k":{"enum":
          ["b",2]},"v":{}},"required":["k","v"],"additionalProperties":false},{"maximum":3}]})",
      R"(s{"anyOf":[{"properties":{"a":{"const":1}}},{"patternProperties":{"^b":{}}},{"$ref":"#/$defs/d"}],
          "if":{"required":["a"]},"unevaluatedProperties":false,"$defs":{"d":{"properties":{"c":{
          "anyOf":[{"prefixItems":[{}]},{"minItems":2}],"unevaluatedItems":{"type":"null"}}}}}})",
      R"(e{"properties":{"a":{"items":{"properties":{"b":{"type":"boolean"}}}},"c":{"$ref":"#/$defs/d"}},
          "required":["c"],"$defs":{"d":{"enum":[1,"x"]}}})",
  };
}

std::vector<std::string> FuzzWords() {
  return {"\"type\":",
          "\"properties\":",
          "\"required\":",
          "\"items\":",
          "\"prefixItems\":",
          "\"anyOf\":",
          "\"oneOf\":",
          "\"allOf\":",
          "\"not\":",
          "\"if\":",
          "\"then\":",
          "\"else\":",
          "\"enum\":",
          "\"const\":",
          "\"$ref\":",
          "\"$defs\":",
          "\"pattern\":",
          "\"patternProperties\":",
          "\"additionalProperties\":",
          "\"propertyNames\":",
          "\"unevaluatedProperties\":",
          "\"unevaluatedItems\":",
          "\"dependentSchemas\":",
          "\"minLength\":",
          "\"maxLength\":",
          "\"minItems\":",
          "\"maxItems\":",
          "\"uniqueItems\":",
          "\"contains\":",
          "\"minimum\":",
          "\"exclusiveMaximum\":",
          "\"multipleOf\":",
          "\"format\":",
          "\"dependentRequired\":",
          "\"minProperties\":",
          "\"#\"",
          "\"#/$defs/n\"",
          "\"object\"",
          "\"array\"",
          "\"string\"",
          "\"integer\"",
          "\"date-time\"",
          "\"uuid\"",
          "true",
          "null",
          "1e400",
          "-0.1",
          "{0,100000}",
          "(?:",
          "(?i)",
          "\\p{L}",
          "\\P{Script=Latin}",
          "\\p{Alphabetic}",
          "(?s-i:",
          "\\b",
          "\\B",
          "[^",
          "|",
          "*",
          "+?",
          "::=",
          "\\n",
          "$",
          "^",
          "\\u0000",
          "\\ud800"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string input(reinterpret_cast<const char*>(data), size);
  auto grammar = lm::Compile(input);
  if (!grammar.ok()) {
    lm::RequireShowable(grammar.status());
    return 0;
  }
  lm::Walk(*std::move(grammar), size);
  return 0;
}
