// The parts that all JSON is made of, as rules of one automaton, made when they are first asked
// for. grammar.h says which form JSON takes.
#ifndef LM_ENGINE_GRAMMAR_SCHEMA_JSON_TEXT_H_
#define LM_ENGINE_GRAMMAR_SCHEMA_JSON_TEXT_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema/schema_document.h"

namespace lm {

class JsonText {
 public:
  // REQUIRES: *builder outlives this.
  JsonText(AutomatonBuilder* builder, JsonSpaces spaces) : builder_(*builder), spaces_(spaces) {}

  // Adds the rules of all of these at once, as they were made before: quicker than one by one,
  // where any value will be asked for. REQUIRES: none has been.
  void AddAll();

  Fragment AnyValue() { return Rule(&rules_.any_value, "any value", &JsonText::DefineAnyValue); }
  Fragment AnyObject() {
    return Rule(&rules_.any_object, "any object", &JsonText::DefineAnyObject);
  }
  Fragment AnyArray() { return Rule(&rules_.any_array, "any array", &JsonText::DefineAnyArray); }
  Fragment AnyString() {
    return Rule(&rules_.any_string, "any string", &JsonText::DefineAnyString);
  }
  Fragment AnyNumber() {
    return Rule(&rules_.any_number, "any number", &JsonText::DefineAnyNumber);
  }
  Fragment AnyInteger() {
    return Rule(&rules_.any_integer, "any integer", &JsonText::DefineAnyInteger);
  }
  // One character of a string.
  Fragment StringChar() {
    return Rule(&rules_.string_char, "a character", &JsonText::DefineStringChar);
  }

  Fragment Boolean() { return builder_.AnyLiteral({"true", "false"}); }
  Fragment Null() { return builder_.Literal("null"); }
  Fragment Comma() { return Separator(","); }
  Fragment Colon() { return Separator(":"); }
  // What stands behind a comma or a colon that `next` follows.
  NodeId BehindSeparator(NodeId next);
  Fragment Quoted(Fragment chars);
  // A key that is none of `names`. REQUIRES: they are without U+0000.
  Fragment KeyExcept(std::vector<std::string> names);
  // This value and no other.
  Fragment Value(const SchemaJson& value);
  // The text of one that is neither object nor array.
  static std::string Scalar(const SchemaJson& value);

 private:
  Fragment Rule(RuleId* rule, absl::string_view name, Fragment (JsonText::*define)());
  Fragment Separator(absl::string_view sign);
  // One character of a string, none of `letters`, and `next` behind it. REQUIRES: they are sorted.
  NodeId CharExcept(absl::Span<const uint32_t> letters, NodeId next);
  // Those of its parts that have none of the letters, as bits.
  NodeId WholeParts(uint32_t parts, NodeId next);
  Fragment EscapesExcept(absl::Span<const uint32_t> letters);
  // open (item (, item)*)? close
  Fragment List(absl::string_view open, RuleId item, absl::string_view close);
  RuleId NewRule(absl::string_view name, Fragment body);

  Fragment DefineAnyValue();
  Fragment DefineAnyObject();
  Fragment DefineAnyArray();
  Fragment DefineAnyString();
  Fragment DefineAnyNumber();
  Fragment DefineAnyInteger();
  Fragment DefineStringChar();
  Fragment DefineKeyExcept(absl::Span<const std::string> sorted);

  // Rules; -1 where there is none yet.
  struct Rules {
    RuleId any_value = -1;
    RuleId any_object = -1;
    RuleId any_array = -1;
    RuleId any_string = -1;
    RuleId any_number = -1;
    RuleId any_integer = -1;
    RuleId string_char = -1;
    RuleId above_ascii = -1;
    RuleId escape = -1;
  };
  static constexpr RuleId Rules::*kAllRules[] = {
      &Rules::any_value,   &Rules::any_object,  &Rules::any_array,
      &Rules::any_string,  &Rules::any_number,  &Rules::any_integer,
      &Rules::string_char, &Rules::above_ascii, &Rules::escape};
  // All of them, made once.
  struct Prepared {
    AutomatonBuilder builder;
    Rules rules;
  };
  static const Prepared& PreparedFor(JsonSpaces spaces);

  AutomatonBuilder& builder_;
  const JsonSpaces spaces_;
  Rules rules_;
  std::map<std::vector<std::string>, RuleId> keys_except_;     // by the names, sorted
  std::map<std::pair<uint32_t, NodeId>, NodeId> whole_parts_;  // by parts and next
  std::map<std::vector<uint32_t>, RuleId> escapes_except_;     // by the letters that they are not
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_SCHEMA_JSON_TEXT_H_
