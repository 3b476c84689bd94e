#include "engine/grammar/json_text.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/text_form.h"

namespace lm {

Fragment JsonText::Rule(RuleId* rule, absl::string_view name, Fragment (JsonText::*define)()) {
  if (*rule < 0) {
    *rule = builder_.AddRule(name);  // known before its body is made, which may call it
    builder_.Define(*rule, (this->*define)());
  }
  return builder_.Call(*rule);
}

RuleId JsonText::NewRule(absl::string_view name, Fragment body) {
  const RuleId rule = builder_.AddRule(name);
  builder_.Define(rule, body);
  return rule;
}

NodeId JsonText::BehindSeparator(NodeId next) {
  if (spaces_ == JsonSpaces::kNone) return next;
  return builder_.AddSplit(builder_.AddBytes(' ', ' ', next), next);
}

Fragment JsonText::Separator(absl::string_view sign) {
  const Fragment end = builder_.Empty();
  const Fragment literal = builder_.Literal(sign);
  builder_.Connect(literal.end, BehindSeparator(end.start));
  return {literal.start, end.end};
}

Fragment JsonText::Quoted(Fragment chars) {
  return builder_.Concat({builder_.Literal("\""), chars, builder_.Literal("\"")});
}

Fragment JsonText::List(absl::string_view open, RuleId item, absl::string_view close) {
  const Fragment more = builder_.Star(builder_.Concat(Comma(), builder_.Call(item)));
  const Fragment items = builder_.Concat(builder_.Call(item), more);
  return builder_.Concat(
      {builder_.Literal(open), builder_.Optional(items), builder_.Literal(close)});
}

Fragment JsonText::DefineAnyValue() {
  return builder_.Alternate({AnyObject(), AnyArray(), AnyString(), AnyNumber(), Boolean(), Null()});
}

Fragment JsonText::DefineAnyObject() {
  const Fragment member = builder_.Concat({AnyString(), Colon(), AnyValue()});
  return List("{", NewRule("a member", member), "}");
}

Fragment JsonText::DefineAnyArray() { return List("[", NewRule("an item", AnyValue()), "]"); }

Fragment JsonText::DefineAnyString() { return Quoted(builder_.Star(StringChar())); }

Fragment JsonText::DefineAnyNumber() {
  return builder_.Alternate({NumbersIn({}, "", &builder_), NumbersWithExponent(&builder_)});
}

Fragment JsonText::DefineAnyInteger() {
  return NumbersIn({.max_fraction_digits = 0}, "", &builder_);
}

Fragment JsonText::DefineStringChar() {
  return ClassIn(TextForm::kJsonString, CodePointSet::All(), &builder_);
}

Fragment JsonText::KeyExcept(absl::Span<const std::string> names) {
  if (names.empty()) return AnyString();
  // A trie of the names; leaving it anywhere leads to a key of its own.
  struct TrieNode {
    bool is_name = false;
    std::map<uint32_t, size_t> children;
  };
  std::vector<TrieNode> trie(1);
  for (const std::string& name : names) {
    size_t at = 0;
    for (size_t pos = 0; pos < name.size();) {
      const uint32_t c = DecodeUtf8(name, &pos);
      auto [child, is_new] = trie[at].children.try_emplace(c, trie.size());
      const size_t next = child->second;
      if (is_new) trie.emplace_back();
      at = next;
    }
    trie[at].is_name = true;
  }
  const NodeId end = builder_.AddLink();
  const NodeId quote = builder_.AddBytes('"', '"', end);
  const Fragment rest = builder_.Star(StringChar());
  builder_.Connect(rest.end, quote);
  std::vector<NodeId> start(trie.size());
  // The same letters go on at many places: what all others lead to is made once.
  std::map<std::vector<uint32_t>, NodeId> other_than;
  const CodePointSet unescaped = UnescapedInJson();
  const CodePointSet escaped = unescaped.Complement();
  std::map<std::vector<uint32_t>, RuleId> escapes_but;
  for (size_t i = trie.size(); i-- > 0;) {
    std::vector<NodeId> ways;
    std::vector<uint32_t> letters;
    std::vector<uint32_t> escaped_letters;
    CodePointSet others = CodePointSet::All();
    for (auto [c, child] : trie[i].children) {
      const CodePointSet one = CodePointSet::Of(c, c);
      const Fragment letter = ClassIn(TextForm::kJsonString, one, &builder_);
      if (escaped.Contains(c)) escaped_letters.push_back(c);
      builder_.Connect(letter.end, start[child]);
      ways.push_back(letter.start);
      letters.push_back(c);
      others = others.Minus(one);
    }
    auto [other, is_new] = other_than.try_emplace(std::move(letters), -1);
    if (is_new) {
      auto [escape, is_new_escape] = escapes_but.try_emplace(std::move(escaped_letters), -1);
      if (is_new_escape) {
        escape->second = NewRule(
            "an escape", ClassIn(TextForm::kJsonString, others.Intersect(escaped), &builder_));
      }
      const Fragment letter = builder_.Class(others.Intersect(unescaped));
      builder_.Connect(letter.end, rest.start);
      other->second = builder_.AddSplit(letter.start, builder_.AddCall(escape->second, rest.start));
    }
    ways.push_back(other->second);
    if (!trie[i].is_name) ways.push_back(quote);
    start[i] = builder_.AddFork(ways);
  }
  return {builder_.AddBytes('"', '"', start[0]), end};
}

Fragment JsonText::Value(const SchemaJson& value) {
  // Recursion is as deep as the schema's text may be.
  if (!value.is_structured()) return builder_.Literal(Scalar(value));
  std::vector<Fragment> parts;
  auto add = [&](const SchemaJson& part, const std::string* name) {
    if (!parts.empty()) parts.push_back(Comma());
    if (name != nullptr) {
      parts.push_back(builder_.Literal(JsonString(*name)));
      parts.push_back(Colon());
    }
    parts.push_back(Value(part));
  };
  if (value.is_object()) {
    for (const auto& [name, member] : value.members()) add(member, &name);
  } else {
    for (const SchemaJson& element : value.array()) add(element, nullptr);
  }
  parts.insert(parts.begin(), builder_.Literal(value.is_object() ? "{" : "["));
  parts.push_back(builder_.Literal(value.is_object() ? "}" : "]"));
  return builder_.Concat(parts);
}

std::string JsonText::Scalar(const SchemaJson& value) {
  if (!value.is_float()) return value.Dump();
  const std::optional<Decimal> number = ParseDecimal(value.Dump());
  return number ? NumberText(*number) : value.Dump();
}

}  // namespace lm
