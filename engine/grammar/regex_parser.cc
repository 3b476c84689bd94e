#include "engine/grammar/regex_parser.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checked_math.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex_lexer.h"

namespace lm {
namespace {

uint64_t AddChars(uint64_t a, uint64_t b) { return CheckedAdd(a, b).value_or(kUnboundedChars); }
uint64_t MulChars(uint64_t a, uint64_t b) { return CheckedMul(a, b).value_or(kUnboundedChars); }

// Keeps the groups that are open on a stack of its own.
class RegexParser {
 public:
  RegexParser(absl::string_view regex, const RegexOptions& options, AutomatonBuilder* builder)
      : options_(options), builder_(*builder), lexer_(regex, options.pattern) {}

  absl::StatusOr<RegexPiece> Parse() {
    groups_.emplace_back();
    bool can_repeat = false;  // the last thing was an atom
    while (!lexer_.AtEnd()) {
      const size_t offset = lexer_.pos();
      Group& group = groups_.back();
      const char c = lexer_.Peek();
      if (group.ended && c != '|') {
        return lexer_.Error("a '$' that is not at the end", group.ended_at);
      }
      if (c == '*' || c == '+' || c == '?') {
        lexer_.Skip(1);
        RETURN_IF_ERROR(Quantify(c == '+' ? 1 : 0,
                                 c == '?' ? std::optional<int64_t>(1) : std::nullopt, can_repeat,
                                 offset));
        can_repeat = false;
        continue;
      }
      if (c == '{') {
        ASSIGN_OR_RETURN(const std::optional<RegexLexer::Counts> counts, lexer_.TakeCounts());
        if (counts) {
          RETURN_IF_ERROR(Quantify(counts->min, counts->max, can_repeat, offset));
          can_repeat = false;
          continue;
        }
      }
      can_repeat = false;
      switch (c) {
        case '(':
          RETURN_IF_ERROR(OpenGroup());
          continue;
        case ')':
          if (groups_.size() == 1) return lexer_.Error("a ')' without '('", offset);
          lexer_.Skip(1);
          CloseGroup();
          can_repeat = true;
          continue;
        case '|':
          lexer_.Skip(1);
          EndAlternative();
          continue;
        case '^':
          if (groups_.size() > 1 || group.begun || !group.sequence.empty()) {
            return lexer_.Error("a '^' that is not at the beginning is not supported", offset);
          }
          lexer_.Skip(1);
          group.begun = true;
          continue;
        case '$':
          if (groups_.size() > 1) {
            return lexer_.Error("a '$' inside a group is not supported", offset);
          }
          lexer_.Skip(1);
          group.ended = true;
          group.ended_at = offset;
          continue;
        default:
          break;
      }
      ASSIGN_OR_RETURN(CodePointSet set, TakeAtom(c));
      Fragment fragment =
          set.empty()
              ? builder_.Nothing(absl::StrCat("the class at byte ", offset,
                                              " of the regular expression has no character"))
              : ClassIn(options_.form, set, &builder_);
      group.sequence.push_back({fragment, 1, 1, std::move(set)});
      can_repeat = true;
    }
    if (groups_.size() > 1) return lexer_.Error("a '(' without ')'", groups_.back().open);
    EndAlternative();
    return Alternatives(&groups_.back());
  }

 private:
  struct Group {
    size_t open = 0;
    std::vector<RegexPiece> alternatives;
    std::vector<RegexPiece> sequence;  // of the alternative that is being read
    bool begun = false;                // it has a '^'
    bool ended = false;                // it has a '$'
    size_t ended_at = 0;
  };

  absl::StatusOr<CodePointSet> TakeAtom(char c) {
    if (c == '[') return lexer_.TakeClass();
    if (c == '\\') return lexer_.TakeEscape();
    const uint32_t letter = lexer_.TakeChar();
    return c == '.' ? lexer_.AnyChar() : CodePointSet::Of(letter, letter);
  }

  absl::Status OpenGroup() {
    const size_t open = lexer_.pos();
    if (groups_.size() > kMaxGrammarDepth) {
      return lexer_.Error(absl::StrCat("too deep: groups within groups, limit ", kMaxGrammarDepth),
                          open);
    }
    lexer_.Skip(1);
    if (lexer_.Consume("?")) {
      if (lexer_.LooksAt("=") || lexer_.LooksAt("!") || lexer_.LooksAt("<=") ||
          lexer_.LooksAt("<!")) {
        return lexer_.Error("look-around ((?=, (?!, (?<=, (?<!) is not supported", open);
      }
      if (lexer_.LooksAt(">")) return lexer_.Error("an atomic group (?> is not supported", open);
      if (lexer_.Consume("P<") || lexer_.Consume("<")) {
        while (!lexer_.AtEnd() && lexer_.Peek() != '>') lexer_.Skip(1);
        if (!lexer_.Consume(">")) return lexer_.Error("a group name without '>'", open);
      } else if (!lexer_.Consume(":")) {
        return lexer_.Error("flags or another (?...) construct is not supported", open);
      }
    }
    groups_.emplace_back();
    groups_.back().open = open;
    return absl::OkStatus();
  }

  void CloseGroup() {
    EndAlternative();
    RegexPiece piece = Alternatives(&groups_.back());
    groups_.pop_back();
    groups_.back().sequence.push_back(std::move(piece));
  }

  // What may stand before or behind an alternative without its anchor.
  RegexPiece Anything() {
    return {builder_.Star(ClassIn(options_.form, CodePointSet::All(), &builder_)), 0,
            kUnboundedChars, std::nullopt};
  }

  void EndAlternative() {
    Group& group = groups_.back();
    std::vector<RegexPiece>& sequence = group.sequence;
    if (options_.pattern && groups_.size() == 1) {
      if (!group.begun) sequence.insert(sequence.begin(), Anything());
      if (!group.ended) sequence.push_back(Anything());
    }
    RegexPiece whole;
    if (sequence.size() == 1) {
      whole = std::move(sequence[0]);
    } else {
      std::vector<Fragment> parts;
      for (const RegexPiece& piece : sequence) {
        parts.push_back(piece.fragment);
        whole.min_chars = AddChars(whole.min_chars, piece.min_chars);
        whole.max_chars = AddChars(whole.max_chars, piece.max_chars);
      }
      whole.fragment = builder_.Concat(parts);
    }
    group.alternatives.push_back(std::move(whole));
    sequence.clear();
    group.begun = group.ended = false;
  }

  RegexPiece Alternatives(Group* group) {
    if (group->alternatives.size() == 1) return std::move(group->alternatives[0]);
    RegexPiece whole;
    whole.min_chars = kUnboundedChars;
    std::vector<Fragment> parts;
    for (const RegexPiece& piece : group->alternatives) {
      parts.push_back(piece.fragment);
      whole.min_chars = std::min(whole.min_chars, piece.min_chars);
      whole.max_chars = std::max(whole.max_chars, piece.max_chars);
    }
    whole.fragment = builder_.Alternate(parts);
    return whole;
  }

  absl::Status Quantify(int64_t min, std::optional<int64_t> max, bool can_repeat, size_t offset) {
    if (!can_repeat) return lexer_.Error("nothing to repeat", offset);
    if (lexer_.LooksAt("+")) {
      return lexer_.Error("a possessive quantifier is not supported", offset);
    }
    lexer_.Consume("?");
    RegexPiece& piece = groups_.back().sequence.back();
    // Only a class that stands once makes a unit when it is repeated.
    if (piece.min_chars != 1 || piece.max_chars != 1) piece.unit.reset();
    piece.fragment = builder_.Repeat(piece.fragment, min, max);
    piece.min_chars = MulChars(piece.min_chars, static_cast<uint64_t>(min));
    if (max) {
      piece.max_chars = MulChars(piece.max_chars, static_cast<uint64_t>(*max));
    } else if (piece.max_chars > 0) {
      piece.max_chars = kUnboundedChars;
    }
    return absl::OkStatus();
  }

  const RegexOptions options_;
  AutomatonBuilder& builder_;
  RegexLexer lexer_;
  std::vector<Group> groups_;
};

}  // namespace

absl::StatusOr<RegexPiece> ParseRegex(absl::string_view regex, const RegexOptions& options,
                                      AutomatonBuilder* builder) {
  if (regex.size() > kMaxGrammarText) {
    return absl::InvalidArgumentError(
        absl::StrCat("regex: too large: ", regex.size(), " bytes, limit ", kMaxGrammarText));
  }
  if (size_t valid = ValidUtf8Prefix(regex); valid != regex.size()) {
    return absl::InvalidArgumentError(absl::StrCat("regex: not valid UTF-8, at byte ", valid));
  }
  if (size_t nul = regex.find('\0'); nul != regex.npos) {
    return absl::InvalidArgumentError(absl::StrCat("regex: a NUL character, at byte ", nul));
  }
  return RegexParser(regex, options, builder).Parse();
}

absl::StatusOr<std::shared_ptr<const Grammar>> CompileRegex(absl::string_view regex) {
  AutomatonBuilder builder;
  const RuleId root = builder.AddRule("regex");
  ASSIGN_OR_RETURN(const RegexPiece piece, ParseRegex(regex, {}, &builder));
  builder.Define(root, piece.fragment);
  ASSIGN_OR_RETURN(Automaton automaton, std::move(builder).Build(root));
  return std::make_shared<const Grammar>(std::move(automaton));
}

}  // namespace lm
