// CompileGbnf; see grammar.h for the notation.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/automaton_builder.h"
#include "engine/grammar/grammar.h"

namespace lm {
namespace {

bool IsNameChar(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_'; }

// Keeps the groups that are open on a stack of its own.
class GbnfParser {
 public:
  explicit GbnfParser(absl::string_view text) : text_(text) {}

  absl::StatusOr<Automaton> Parse() {
    SkipSpace(/*newlines=*/true);
    while (!AtEnd()) {
      RETURN_IF_ERROR(ParseRule());
      SkipSpace(/*newlines=*/true);
    }
    auto root = rules_.find("root");
    if (root == rules_.end()) return absl::InvalidArgumentError("grammar: no rule named root");
    for (const auto& [name, used_at] : first_use_) {
      if (!builder_.IsDefined(rules_[name])) {
        return Error(absl::StrCat("rule ", name, " is not defined"), used_at);
      }
    }
    if (!builder_.IsDefined(root->second)) {
      return absl::InvalidArgumentError("grammar: no rule named root");
    }
    const RuleId root_rule = root->second;
    return std::move(builder_).Build(root_rule);
  }

 private:
  struct Group {
    size_t open = 0;
    std::vector<Fragment> alternatives;
    std::vector<Fragment> sequence;
  };

  bool AtEnd() const { return pos_ == text_.size(); }
  char Peek() const { return text_[pos_]; }
  bool Consume(absl::string_view token) {
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }

  absl::Status Error(absl::string_view what, size_t offset) const {
    size_t line = 1, column = 1;
    for (char c : text_.substr(0, offset)) {
      ++column;
      if (c == '\n') {
        ++line;
        column = 1;
      }
    }
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: ", what, ", at line ", line, " column ", column));
  }

  // Spaces and comments; line ends too if `newlines`.
  void SkipSpace(bool newlines) {
    while (!AtEnd()) {
      const char c = Peek();
      if (c == '#') {
        while (!AtEnd() && Peek() != '\n') ++pos_;
      } else if (c == ' ' || c == '\t' || (newlines && (c == '\n' || c == '\r'))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  absl::StatusOr<std::string> TakeName() {
    const size_t from = pos_;
    while (!AtEnd() && IsNameChar(Peek())) ++pos_;
    if (pos_ == from) return Error("a rule's name was expected", from);
    return std::string(text_.substr(from, pos_ - from));
  }

  RuleId RuleNamed(const std::string& name) {
    auto [at, is_new] = rules_.try_emplace(name, -1);
    if (is_new) at->second = builder_.AddRule(name);
    return at->second;
  }

  absl::Status ParseRule() {
    const size_t offset = pos_;
    ASSIGN_OR_RETURN(const std::string name, TakeName());
    SkipSpace(false);
    if (!Consume("::=")) return Error("::= was expected behind a rule's name", pos_);
    const RuleId rule = RuleNamed(name);
    RETURN_IF_ERROR(builder_.status());
    if (builder_.IsDefined(rule)) {
      return Error(absl::StrCat("rule ", name, " is defined twice"), offset);
    }
    SkipSpace(true);
    ASSIGN_OR_RETURN(const Fragment body, ParseBody());
    builder_.Define(rule, body);
    return absl::OkStatus();
  }

  void EndAlternative(Group* group) {
    group->alternatives.push_back(builder_.Concat(group->sequence));
    group->sequence.clear();
  }

  // Up to the line end that no '|' or parenthesis continues over.
  absl::StatusOr<Fragment> ParseBody() {
    std::vector<Group> groups(1);
    bool can_repeat = false;
    while (true) {
      SkipSpace(/*newlines=*/groups.size() > 1);
      if (AtEnd() || Peek() == '\n' || Peek() == '\r') {
        const size_t line_end = pos_;
        SkipSpace(true);
        if (groups.size() == 1 && !AtEnd() && Peek() == '|') continue;
        if (groups.size() == 1 || AtEnd()) {
          pos_ = line_end;
          break;
        }
      }
      const size_t offset = pos_;
      const char c = Peek();
      Group& group = groups.back();
      if (c == '(') {
        if (groups.size() > kMaxGrammarDepth) {
          return Error(absl::StrCat("too deep: groups within groups, limit ", kMaxGrammarDepth),
                       offset);
        }
        ++pos_;
        groups.emplace_back();
        groups.back().open = offset;
        can_repeat = false;
      } else if (c == ')') {
        if (groups.size() == 1) return Error("a ')' without '('", offset);
        ++pos_;
        EndAlternative(&group);
        const Fragment whole = builder_.Alternate(group.alternatives);
        groups.pop_back();
        groups.back().sequence.push_back(whole);
        can_repeat = true;
      } else if (c == '|') {
        ++pos_;
        SkipSpace(true);
        EndAlternative(&group);
        can_repeat = false;
      } else if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (!can_repeat) return Error("nothing to repeat", offset);
        RETURN_IF_ERROR(Quantify(&group.sequence.back()));
      } else {
        ASSIGN_OR_RETURN(const Fragment item, ParseItem());
        group.sequence.push_back(item);
        can_repeat = true;
      }
    }
    if (groups.size() > 1) return Error("a '(' without ')'", groups.back().open);
    EndAlternative(&groups[0]);
    return builder_.Alternate(groups[0].alternatives);
  }

  absl::StatusOr<Fragment> ParseItem() {
    const size_t offset = pos_;
    const char c = Peek();
    if (c == '"') return ParseLiteral();
    if (c == '[') return ParseClass();
    if (c == '.') {
      ++pos_;
      return builder_.Class(CodePointSet::All());
    }
    if (c == '<' || c == '!') return Error("a token reference (<...>) is not supported", offset);
    if (!IsNameChar(c)) {
      return Error(absl::StrCat("'", absl::CHexEscape(std::string(1, c)), "' was not expected"),
                   offset);
    }
    ASSIGN_OR_RETURN(const std::string name, TakeName());
    first_use_.try_emplace(name, offset);
    return builder_.Call(RuleNamed(name));
  }

  // A character, or what an escape stands for.
  absl::StatusOr<uint32_t> TakeChar(bool may_be_nul) {
    const size_t offset = pos_;
    if (Peek() != '\\') return DecodeUtf8(text_, &pos_);
    ++pos_;
    if (AtEnd()) return Error("a '\\' at the end", offset);
    const char c = text_[pos_++];
    int digits = 0;
    switch (c) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return c;
      case 'x':
        digits = 2;
        break;
      case 'u':
        digits = 4;
        break;
      case 'U':
        digits = 8;
        break;
      default:
        return Error("an escape that is not known", offset);
    }
    uint64_t value = 0;
    for (; digits > 0; --digits) {
      if (AtEnd() || !absl::ascii_isxdigit(Peek())) {
        return Error("an escape with too few hex digits", offset);
      }
      const char digit = absl::ascii_tolower(text_[pos_++]);
      value = value * 16 + static_cast<uint64_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    const uint32_t code_point = static_cast<uint32_t>(value);
    if (CodePointSet::Of(code_point, code_point).empty() && !(may_be_nul && code_point == 0)) {
      return Error("an escape that is no character, or is NUL", offset);
    }
    return code_point;
  }

  absl::StatusOr<Fragment> ParseLiteral() {
    const size_t open = pos_++;
    std::string text;
    while (!AtEnd() && Peek() != '"') {
      ASSIGN_OR_RETURN(const uint32_t c, TakeChar(/*may_be_nul=*/false));
      AppendUtf8(c, &text);
    }
    if (!Consume("\"")) return Error("a '\"' without its end", open);
    return builder_.Literal(text);
  }

  // NUL may stand in it, and no text has it.
  absl::StatusOr<Fragment> ParseClass() {
    const size_t open = pos_++;
    const bool negated = Consume("^");
    CodePointSet set;
    while (!AtEnd() && Peek() != ']') {
      const size_t offset = pos_;
      ASSIGN_OR_RETURN(const uint32_t low, TakeChar(/*may_be_nul=*/true));
      uint32_t high = low;
      if (pos_ + 1 < text_.size() && Peek() == '-' && text_[pos_ + 1] != ']') {
        ++pos_;
        ASSIGN_OR_RETURN(high, TakeChar(/*may_be_nul=*/true));
      }
      if (low > high) return Error("a range that goes backwards", offset);
      set.Add(low, high);
    }
    if (!Consume("]")) return Error("a '[' without ']'", open);
    if (negated) set = set.Complement();
    if (!set.empty()) return builder_.Class(set);
    return builder_.Nothing(std::string(Error("a class without a character", open).message()));
  }

  std::optional<int64_t> TakeNumber() {
    SkipSpace(false);
    std::optional<int64_t> value;
    for (; !AtEnd() && absl::ascii_isdigit(Peek()); ++pos_) {
      value = std::min(value.value_or(0) * 10 + (Peek() - '0'), kMaxRepeat + 1);
    }
    SkipSpace(false);
    return value;
  }

  absl::Status Quantify(Fragment* item) {
    const size_t offset = pos_;
    const char c = text_[pos_++];
    int64_t min = c == '+' ? 1 : 0;
    std::optional<int64_t> max;
    if (c == '?') max = 1;
    if (c == '{') {
      const std::optional<int64_t> count = TakeNumber();
      max = count;
      const bool open_ended = Consume(",");
      if (open_ended) max = TakeNumber();
      if ((!count && !open_ended) || !Consume("}")) {
        return Error("a repetition is written {m}, {m,} or {m,n}", offset);
      }
      min = count.value_or(0);
      if (min > kMaxRepeat || max.value_or(0) > kMaxRepeat) {
        return Error(absl::StrCat("a repetition above the limit ", kMaxRepeat), offset);
      }
      if (max && *max < min) return Error("a repetition whose counts go backwards", offset);
    }
    *item = builder_.Repeat(*item, min, max);
    return absl::OkStatus();
  }

  const absl::string_view text_;
  size_t pos_ = 0;
  AutomatonBuilder builder_;
  HashMap<std::string, RuleId> rules_;
  HashMap<std::string, size_t> first_use_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileGbnf(absl::string_view grammar) {
  if (grammar.size() > kMaxGrammarText) {
    return absl::InvalidArgumentError(
        absl::StrCat("grammar: too large: ", grammar.size(), " bytes, limit ", kMaxGrammarText));
  }
  if (size_t valid = ValidUtf8Prefix(grammar); valid != grammar.size()) {
    return absl::InvalidArgumentError(absl::StrCat("grammar: not valid UTF-8, at byte ", valid));
  }
  if (size_t nul = grammar.find('\0'); nul != grammar.npos) {
    return absl::InvalidArgumentError(absl::StrCat("grammar: a NUL character, at byte ", nul));
  }
  ASSIGN_OR_RETURN(Automaton automaton, GbnfParser(grammar).Parse());
  return std::make_shared<const Grammar>(std::move(automaton));
}

}  // namespace lm
