#include "engine/grammar/schema/json_text.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/grammar/number_range.h"
#include "engine/grammar/text_form.h"

namespace lm {
namespace {

// The characters of ASCII that are not escaped; what else JsonText::WholeParts has.
constexpr struct {
  uint32_t low, high;
} kUnescapedRanges[] = {{0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7f}};
constexpr uint32_t kWholeAbove = 1 << std::size(kUnescapedRanges);
constexpr uint32_t kWholeEscapes = kWholeAbove << 1;
constexpr uint32_t kFirstAbove = 0x80, kLastAbove = 0x10ffff;

}  // namespace

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

const JsonText::Prepared& JsonText::PreparedFor(JsonSpaces spaces) {
  auto prepare = [](JsonSpaces form) {
    auto prepared = std::make_unique<Prepared>();
    JsonText json(&prepared->builder, form);
    // Calls that lead nowhere, and are left out in the end.
    json.AnyValue();
    json.AnyInteger();
    json.CharExcept({}, prepared->builder.AddLink());
    prepared->rules = json.rules_;
    return prepared.release();
  };
  static const Prepared& none = *prepare(JsonSpaces::kNone);
  static const Prepared& allowed = *prepare(JsonSpaces::kAllowed);
  return spaces == JsonSpaces::kNone ? none : allowed;
}

void JsonText::AddAll() {
  const Prepared& prepared = PreparedFor(spaces_);
  const RuleId first = builder_.AddAll(prepared.builder);
  for (RuleId Rules::*rule : kAllRules) rules_.*rule = prepared.rules.*rule + first;
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

Fragment JsonText::KeyExcept(std::vector<std::string> names) {
  if (names.empty()) return AnyString();
  std::sort(names.begin(), names.end());
  auto [key, is_new] = keys_except_.try_emplace(names, -1);
  if (is_new) key->second = NewRule("a key", DefineKeyExcept(names));
  return builder_.Call(key->second);
}

Fragment JsonText::DefineKeyExcept(absl::Span<const std::string> sorted) {
  // A trie of the names; leaving it anywhere leads to a key of its own. Children in order.
  struct TrieNode {
    bool is_name = false;
    std::vector<std::pair<uint32_t, size_t>> children = {};
  };
  std::vector<TrieNode> trie(1);
  for (absl::string_view name : sorted) {
    size_t at = 0;
    for (size_t pos = 0; pos < name.size();) {
      const uint32_t c = DecodeUtf8(name, &pos);
      auto& children = trie[at].children;
      if (children.empty() || children.back().first != c) {
        children.emplace_back(c, trie.size());
        trie.emplace_back();
      }
      at = trie[at].children.back().second;
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
  for (size_t i = trie.size(); i-- > 0;) {
    std::vector<NodeId> ways;
    std::vector<uint32_t> letters;
    for (auto [c, child] : trie[i].children) {
      if (c < 0x80 && !IsEscapedInJson(c)) {
        ways.push_back(
            builder_.AddBytes(static_cast<uint8_t>(c), static_cast<uint8_t>(c), start[child]));
      } else {
        const Fragment letter = ClassIn(TextForm::kJsonString, CodePointSet::Of(c, c), &builder_);
        builder_.Connect(letter.end, start[child]);
        ways.push_back(letter.start);
      }
      letters.push_back(c);
    }
    auto [other, is_new] = other_than.try_emplace(std::move(letters), -1);
    if (is_new) other->second = CharExcept(other->first, rest.start);
    ways.push_back(other->second);
    if (!trie[i].is_name) ways.push_back(quote);
    start[i] = builder_.AddFork(ways);
  }
  return {builder_.AddBytes('"', '"', start[0]), end};
}

NodeId JsonText::CharExcept(absl::Span<const uint32_t> letters, NodeId next) {
  auto has_letter = [&](uint32_t low, uint32_t high) {
    const auto least = std::lower_bound(letters.begin(), letters.end(), low);
    return least != letters.end() && *least <= high;
  };
  std::vector<NodeId> ways;
  // What has none of the letters is the same for all that go on at `next`.
  uint32_t whole = 0;
  for (size_t part = 0; part < std::size(kUnescapedRanges); ++part) {
    const auto [low, high] = kUnescapedRanges[part];
    if (!has_letter(low, high)) {
      whole |= 1u << part;
      continue;
    }
    uint32_t first = low;
    auto end_range = [&](uint32_t end) {
      if (first < end) {
        ways.push_back(
            builder_.AddBytes(static_cast<uint8_t>(first), static_cast<uint8_t>(end - 1), next));
      }
      first = end + 1;
    };
    for (const uint32_t c : letters) {
      if (low <= c && c <= high) end_range(c);
    }
    end_range(high + 1);
  }
  if (has_letter(kFirstAbove, kLastAbove)) {
    CodePointSet above = CodePointSet::Of(kFirstAbove, kLastAbove);
    for (const uint32_t c : letters) above = above.Minus(CodePointSet::Of(c, c));
    const Fragment others = builder_.Class(above);
    builder_.Connect(others.end, next);
    ways.push_back(others.start);
  } else {
    whole |= kWholeAbove;
  }
  std::vector<uint32_t> escaped;
  for (const uint32_t c : letters) {
    if (c < 0x80 && IsEscapedInJson(c)) escaped.push_back(c);
  }
  if (escaped.empty()) {
    whole |= kWholeEscapes;
  } else {
    auto [rule, is_new] = escapes_except_.try_emplace(std::move(escaped), -1);
    if (is_new) rule->second = NewRule("an escape", EscapesExcept(letters));
    ways.push_back(builder_.AddCall(rule->second, next));
  }
  if (whole != 0) {
    auto [others, is_new] = whole_parts_.try_emplace({whole, next}, -1);
    if (is_new) others->second = WholeParts(whole, next);
    ways.push_back(others->second);
  }
  return builder_.AddFork(ways);
}

NodeId JsonText::WholeParts(uint32_t parts, NodeId next) {
  std::vector<NodeId> ways;
  for (size_t part = 0; part < std::size(kUnescapedRanges); ++part) {
    const auto [low, high] = kUnescapedRanges[part];
    if ((parts >> part & 1) == 0) continue;
    ways.push_back(builder_.AddBytes(static_cast<uint8_t>(low), static_cast<uint8_t>(high), next));
  }
  if (parts & kWholeAbove) {
    if (rules_.above_ascii < 0) {
      rules_.above_ascii =
          NewRule("a character", builder_.Class(CodePointSet::Of(kFirstAbove, kLastAbove)));
    }
    ways.push_back(builder_.AddCall(rules_.above_ascii, next));
  }
  if (parts & kWholeEscapes) {
    if (rules_.escape < 0) rules_.escape = NewRule("an escape", EscapesExcept({}));
    ways.push_back(builder_.AddCall(rules_.escape, next));
  }
  return builder_.AddFork(ways);
}

Fragment JsonText::EscapesExcept(absl::Span<const uint32_t> letters) {
  CodePointSet set = UnescapedInJson().Complement();
  for (const uint32_t c : letters) set = set.Minus(CodePointSet::Of(c, c));
  return ClassIn(TextForm::kJsonString, set, &builder_);
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
  std::string text = value.Dump();
  const std::optional<Decimal> number = ParseDecimal(text);
  if (!number) return text;
  if (value.is_long_integer()) {
    // Digits that a double would round are kept.
    const std::optional<Decimal> nearest = ParseDecimal(SchemaJson(value.number()).Dump());
    if (!nearest || Compare(*number, *nearest) != 0) return text;
  }
  return NumberText(*number);
}

}  // namespace lm
