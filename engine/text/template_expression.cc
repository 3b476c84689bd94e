#include "engine/text/template_expression.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/template_lexer.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

using Kind = TemplateValue::Kind;
using Token = TemplateToken::Kind;

constexpr int kMaxDepth = 32;
constexpr int64_t kMaxInteger = 1000000000;

absl::Status Unknown(absl::string_view what) { return absl::UnimplementedError(what); }

// A recursive descent over the tokens. Below `and`, `or` and `if else` what is not needed is parsed
// with live_ = false: then values are undefined and only the grammar can be wrong.
class Parser {
 public:
  Parser(std::vector<TemplateToken> tokens, const TemplateScope& scope)
      : tokens_(std::move(tokens)), scope_(scope) {}

  absl::StatusOr<TemplateValue> Run() {
    ASSIGN_OR_RETURN(TemplateValue value, Conditional());
    if (Peek().kind != Token::kEnd) return Unknown(absl::StrCat(QuoteName(Peek().text), " there"));
    return value;
  }

 private:
  const TemplateToken& Peek() const { return tokens_[pos_]; }
  bool Take(Token kind, absl::string_view text) {
    if (Peek().kind != kind || Peek().text != text) return false;
    ++pos_;
    return true;
  }
  bool TakeOperator(absl::string_view text) { return Take(Token::kOperator, text); }
  bool TakeWord(absl::string_view text) { return Take(Token::kName, text); }

  // Runs `parse` with values only if `live`.
  template <typename Parse>
  absl::StatusOr<TemplateValue> Only(bool live, Parse parse) {
    const bool before = live_;
    live_ = before && live;
    absl::StatusOr<TemplateValue> value = parse();
    live_ = before;
    return value;
  }

  absl::StatusOr<bool> LiveTruth(const TemplateValue& value) {
    if (!live_) return false;
    return Truth(value);
  }

  // The position of the `if` that belongs to the expression beginning here, or 0.
  size_t FindIf() const {
    int brackets = 0;
    for (size_t i = pos_; tokens_[i].kind != Token::kEnd; ++i) {
      const TemplateToken& token = tokens_[i];
      if (token.kind == Token::kName && brackets == 0 && token.text == "if") return i;
      if (token.kind != Token::kOperator) continue;
      if (token.text == "(" || token.text == "[" || token.text == "{") ++brackets;
      if (token.text == ")" || token.text == "]" || token.text == "}") --brackets;
      if (brackets < 0) break;
    }
    return 0;
  }

  // a if c else b: c first, as it says which of the others may be looked at.
  absl::StatusOr<TemplateValue> Conditional() {
    if (++depth_ > kMaxDepth) return Unknown("an expression nested this deep");
    const size_t begin = pos_;
    const size_t word = FindIf();
    TemplateValue value;
    if (word == 0) {
      ASSIGN_OR_RETURN(value, Or());
      --depth_;
      return value;
    }
    pos_ = word + 1;
    ASSIGN_OR_RETURN(TemplateValue condition, Or());
    ASSIGN_OR_RETURN(bool truth, LiveTruth(condition));
    const size_t after = pos_;
    pos_ = begin;
    ASSIGN_OR_RETURN(value, Only(truth, [this] { return Or(); }));
    if (pos_ != word) return Unknown(absl::StrCat(QuoteName(Peek().text), " there"));
    pos_ = after;
    if (!truth) value = TemplateValue();
    if (TakeWord("else")) {
      ASSIGN_OR_RETURN(TemplateValue other, Only(!truth, [this] { return Conditional(); }));
      if (!truth) value = std::move(other);
    }
    --depth_;
    return value;
  }

  absl::StatusOr<TemplateValue> Or() {
    ASSIGN_OR_RETURN(TemplateValue value, And());
    while (TakeWord("or")) {
      ASSIGN_OR_RETURN(bool truth, LiveTruth(value));
      ASSIGN_OR_RETURN(TemplateValue right, Only(!truth, [this] { return And(); }));
      if (!truth) value = std::move(right);
    }
    return value;
  }

  absl::StatusOr<TemplateValue> And() {
    ASSIGN_OR_RETURN(TemplateValue value, Not());
    while (TakeWord("and")) {
      ASSIGN_OR_RETURN(bool truth, LiveTruth(value));
      ASSIGN_OR_RETURN(TemplateValue right, Only(truth, [this] { return Not(); }));
      if (truth) value = std::move(right);
    }
    return value;
  }

  absl::StatusOr<TemplateValue> Not() {
    bool negated = false;
    bool any = false;
    while (TakeWord("not")) {
      negated = !negated;
      any = true;
    }
    ASSIGN_OR_RETURN(TemplateValue value, Comparison());
    if (!any) return value;
    ASSIGN_OR_RETURN(bool truth, LiveTruth(value));
    return BoolValue(truth != negated);
  }

  absl::StatusOr<TemplateValue> Comparison() {
    ASSIGN_OR_RETURN(TemplateValue value, Sum());
    for (;;) {
      bool equal = true;
      if (TakeOperator("!=")) {
        equal = false;
      } else if (!TakeOperator("==")) {
        return value;
      }
      ASSIGN_OR_RETURN(TemplateValue right, Sum());
      if (!live_) continue;
      ASSIGN_OR_RETURN(bool same, Same(value, right));
      value = BoolValue(same == equal);
    }
  }

  static absl::StatusOr<bool> Same(const TemplateValue& a, const TemplateValue& b) {
    if (a.kind == Kind::kString && b.kind == Kind::kString) {
      const std::string* left = KnownText(a);
      const std::string* right = KnownText(b);
      if (left == nullptr || right == nullptr) return Unknown("a comparison with a message's text");
      return *left == *right;
    }
    const bool simple = a.kind <= Kind::kString && b.kind <= Kind::kString;
    if (!simple) return Unknown("a comparison of whole messages");
    if (a.kind != b.kind) {
      const bool numbers = (a.kind == Kind::kBool || a.kind == Kind::kInteger) &&
                           (b.kind == Kind::kBool || b.kind == Kind::kInteger);
      if (!numbers) return false;
    }
    return a.integer == b.integer;
  }

  // + and ~ (which bind differently, but over strings mean the same), - over integers.
  absl::StatusOr<TemplateValue> Sum() {
    ASSIGN_OR_RETURN(TemplateValue value, Tested());
    for (;;) {
      const bool minus = Peek().kind == Token::kOperator && Peek().text == "-";
      if (!minus && !TakeOperator("+") && !TakeOperator("~")) return value;
      if (minus) ++pos_;
      ASSIGN_OR_RETURN(TemplateValue right, Tested());
      if (!live_) continue;
      if (value.kind == Kind::kInteger && right.kind == Kind::kInteger) {
        value.integer += minus ? -right.integer : right.integer;
        if (std::abs(value.integer) > kMaxInteger) return Unknown("a number of this size");
      } else if (!minus && value.kind == Kind::kString && right.kind == Kind::kString) {
        RETURN_IF_ERROR(AppendSegments(right.text, &value.text));
      } else {
        return Unknown("a sum of other things than strings");
      }
    }
  }

  // x is [not] test
  absl::StatusOr<TemplateValue> Tested() {
    ASSIGN_OR_RETURN(TemplateValue value, Postfix());
    while (TakeWord("is")) {
      const bool negated = TakeWord("not");
      bool truth = false;
      if (TakeWord("defined")) {
        truth = value.kind != Kind::kUndefined;
      } else if (TakeWord("undefined")) {
        truth = value.kind == Kind::kUndefined;
      } else if (TakeWord("none")) {
        truth = value.kind == Kind::kNone;
      } else if (TakeWord("string")) {
        truth = value.kind == Kind::kString;
      } else {
        return Unknown(absl::StrCat("the test ", QuoteName(Peek().text)));
      }
      value = live_ ? BoolValue(truth != negated) : TemplateValue();
    }
    return value;
  }

  absl::StatusOr<TemplateValue> Postfix() {
    ASSIGN_OR_RETURN(TemplateValue value, Primary());
    for (;;) {
      if (TakeOperator(".")) {
        if (Peek().kind != Token::kName) return Unknown("a dot without a name");
        const TemplateValue key = TextValue(tokens_[pos_++].text);
        ASSIGN_OR_RETURN(value, Item(value, key));
      } else if (TakeOperator("[")) {
        ASSIGN_OR_RETURN(value, Subscript(value));
      } else if (TakeOperator("|")) {
        if (!TakeWord("length") && !TakeWord("count")) {
          return Unknown(absl::StrCat("the filter ", QuoteName(Peek().text)));
        }
        if (live_ && value.kind != Kind::kMessages) return Unknown("the length of something");
        value = IntegerValue(value.end - value.begin);
      } else if (Peek().kind == Token::kOperator && Peek().text == "(") {
        return Unknown("a function call");
      } else {
        return value;
      }
    }
  }

  absl::StatusOr<TemplateValue> Subscript(const TemplateValue& value) {
    if (TakeOperator(":")) return Unknown("a slice of this form");
    ASSIGN_OR_RETURN(TemplateValue key, Conditional());
    if (TakeOperator(":")) {
      if (!TakeOperator("]")) return Unknown("a slice of this form");
      if (!live_) return TemplateValue();
      if (value.kind != Kind::kMessages || key.kind != Kind::kInteger || key.integer < 0) {
        return Unknown("a slice of something");
      }
      TemplateValue rest = value;
      rest.begin = std::min(value.begin + key.integer, value.end);
      return rest;
    }
    if (!TakeOperator("]")) return Unknown("a subscript of this form");
    return Item(value, key);
  }

  absl::StatusOr<TemplateValue> Item(const TemplateValue& value, const TemplateValue& key) {
    if (!live_) return TemplateValue();
    if (value.kind == Kind::kMessages && key.kind == Kind::kInteger) {
      const int64_t index = (key.integer < 0 ? value.end : value.begin) + key.integer;
      TemplateValue message;
      if (index < value.begin || index >= value.end) return message;
      message.kind = Kind::kMessage;
      message.integer = index;
      return message;
    }
    const std::string* name = KnownText(key);
    if (name == nullptr) return Unknown("a subscript that is neither a number nor a name");
    if (value.kind == Kind::kMessage) {
      const bool system = scope_.is_system[value.integer];
      if (*name == "role") return TextValue(system ? "system" : "user");
      if (*name == "content") {
        return SegmentValue(system ? TemplateSegment::Kind::kSystem : TemplateSegment::Kind::kUser);
      }
      return TemplateValue();
    }
    if (value.kind == Kind::kLoop) {
      if (*name == "first") return BoolValue(value.integer == 0);
      if (*name == "last") return BoolValue(value.integer + 1 == value.end);
      if (*name == "index0") return IntegerValue(value.integer);
      if (*name == "index") return IntegerValue(value.integer + 1);
    }
    return Unknown(absl::StrCat("the member ", QuoteName(*name), " of something"));
  }

  absl::StatusOr<TemplateValue> Primary() {
    const TemplateToken token = Peek();
    if (TakeOperator("(")) {
      ASSIGN_OR_RETURN(TemplateValue value, Conditional());
      if (!TakeOperator(")")) return Unknown("parentheses of this form");
      return value;
    }
    if (TakeOperator("-")) {
      if (Peek().kind != Token::kInteger) return Unknown("a sign before something");
      ASSIGN_OR_RETURN(TemplateValue value, Primary());
      value.integer = -value.integer;
      return value;
    }
    ++pos_;
    switch (token.kind) {
      case Token::kString:
        return TextValue(token.text);
      case Token::kInteger: {
        int64_t value = 0;
        if (!absl::SimpleAtoi(token.text, &value)) return Unknown("a number of this size");
        return IntegerValue(value);
      }
      case Token::kName:
        if (token.text == "true" || token.text == "True") return BoolValue(true);
        if (token.text == "false" || token.text == "False") return BoolValue(false);
        if (token.text == "none" || token.text == "None") {
          TemplateValue none;
          none.kind = Kind::kNone;
          return none;
        }
        if (auto it = scope_.variables.find(token.text); it != scope_.variables.end()) {
          return it->second;
        }
        return TemplateValue();
      case Token::kOperator:
      case Token::kEnd:
        break;
    }
    --pos_;
    return Unknown(absl::StrCat(QuoteName(token.text), " there"));
  }

  std::vector<TemplateToken> tokens_;
  const TemplateScope& scope_;
  size_t pos_ = 0;
  int depth_ = 0;
  bool live_ = true;
};

}  // namespace

absl::StatusOr<TemplateValue> EvaluateExpression(absl::string_view source,
                                                 const TemplateScope& scope) {
  ASSIGN_OR_RETURN(std::vector<TemplateToken> tokens, LexExpression(source));
  return Parser(std::move(tokens), scope).Run();
}

}  // namespace lm
