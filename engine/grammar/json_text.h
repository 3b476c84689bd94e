// The parts that all JSON is made of, as rules of one automaton, made when they are first asked
// for. grammar.h says which form JSON takes.
#ifndef LM_ENGINE_GRAMMAR_JSON_TEXT_H_
#define LM_ENGINE_GRAMMAR_JSON_TEXT_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/schema_document.h"

namespace lm {

class JsonText {
 public:
  // REQUIRES: *builder outlives this.
  JsonText(AutomatonBuilder* builder, JsonSpaces spaces) : builder_(*builder), spaces_(spaces) {}

  Fragment AnyValue() { return Rule(&any_value_, "any value", &JsonText::DefineAnyValue); }
  Fragment AnyObject() { return Rule(&any_object_, "any object", &JsonText::DefineAnyObject); }
  Fragment AnyArray() { return Rule(&any_array_, "any array", &JsonText::DefineAnyArray); }
  Fragment AnyString() { return Rule(&any_string_, "any string", &JsonText::DefineAnyString); }
  Fragment AnyNumber() { return Rule(&any_number_, "any number", &JsonText::DefineAnyNumber); }
  Fragment AnyInteger() { return Rule(&any_integer_, "any integer", &JsonText::DefineAnyInteger); }
  // One character of a string.
  Fragment StringChar() { return Rule(&string_char_, "a character", &JsonText::DefineStringChar); }

  Fragment Boolean() { return builder_.AnyLiteral({"true", "false"}); }
  Fragment Null() { return builder_.Literal("null"); }
  Fragment Comma() { return Separator(","); }
  Fragment Colon() { return Separator(":"); }
  // What stands behind a comma or a colon that `next` follows.
  NodeId BehindSeparator(NodeId next);
  Fragment Quoted(Fragment chars);
  // A key that is none of `names`. REQUIRES: they are without U+0000.
  Fragment KeyExcept(absl::Span<const std::string> names);
  // This value and no other.
  Fragment Value(const SchemaJson& value);
  // The text of one that is neither object nor array.
  static std::string Scalar(const SchemaJson& value);

 private:
  Fragment Rule(RuleId* rule, absl::string_view name, Fragment (JsonText::*define)());
  Fragment Separator(absl::string_view sign);
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

  AutomatonBuilder& builder_;
  const JsonSpaces spaces_;
  RuleId any_value_ = -1;
  RuleId any_object_ = -1;
  RuleId any_array_ = -1;
  RuleId any_string_ = -1;
  RuleId any_number_ = -1;
  RuleId any_integer_ = -1;
  RuleId string_char_ = -1;
};

}  // namespace lm

#endif  // LM_ENGINE_GRAMMAR_JSON_TEXT_H_
