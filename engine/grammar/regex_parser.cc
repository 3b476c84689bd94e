#include "engine/grammar/regex_parser.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/hash_map.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/regex_compiler.h"
#include "engine/grammar/regex_lexer.h"

namespace lm {
namespace {

using Kind = RegexTree::Kind;

// Keeps the groups that are open on a stack of its own.
class RegexParser {
 public:
  RegexParser(absl::string_view regex, bool is_pattern)
      : regex_(regex), is_pattern_(is_pattern), lexer_(regex, is_pattern) {}

  absl::StatusOr<RegexTree> Parse() {
    groups_.emplace_back();
    bool can_repeat = false;  // the last thing was an atom
    for (size_t number = 0; !lexer_.AtEnd(); ++number) {
      if (number % 256 == 0) RETURN_IF_ERROR(Checkpoint());
      const size_t offset = lexer_.pos();
      const char c = lexer_.Peek();
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
        default:
          break;
      }
      ASSIGN_OR_RETURN(const bool is_place, TakePlace());
      if (is_place) continue;
      ASSIGN_OR_RETURN(RegexTree atom, TakeAtom());
      groups_.back().sequence.push_back(std::move(atom));
      can_repeat = true;
    }
    if (groups_.size() > 1) return lexer_.Error("a '(' without ')'", groups_.back().open);
    EndAlternative();
    return RegexTree::Alternatives(std::move(groups_.back().alternatives));
  }

 private:
  struct Group {
    size_t open = 0;
    RegexLexer::Flags flags;  // behind it
    std::vector<RegexTree> alternatives;
    std::vector<RegexTree> sequence;  // of the alternative that is being read
  };

  // False where none is here.
  absl::StatusOr<bool> TakePlace() {
    const size_t offset = lexer_.pos();
    std::optional<Kind> place;
    if (lexer_.Consume("^") || (!is_pattern_ && lexer_.Consume("\\A"))) {
      place = Kind::kBegin;
    } else if (lexer_.Consume("$") || (!is_pattern_ && lexer_.Consume("\\z"))) {
      place = Kind::kEnd;
    } else if (lexer_.Consume("\\b")) {
      place = Kind::kWordBoundary;
    } else if (lexer_.Consume("\\B")) {
      place = Kind::kNotWordBoundary;
    }
    if (!place) return false;
    const bool of_words = *place == Kind::kWordBoundary || *place == Kind::kNotWordBoundary;
    if (of_words && is_pattern_ && lexer_.flags().ignore_case) {
      return lexer_.Error(
          "\\b and \\B in (?i), where ECMA-262 has words of its own, are not supported", offset);
    }
    groups_.back().sequence.push_back(RegexTree::Place(*place));
    return true;
  }

  absl::StatusOr<CodePointSet> TakeSet() {
    if (lexer_.LooksAt("[")) return lexer_.TakeClass();
    if (lexer_.LooksAt("\\")) return lexer_.TakeEscape();
    if (lexer_.Consume(".")) return lexer_.AnyChar();
    return lexer_.TakeLetter();
  }

  absl::StatusOr<RegexTree> TakeAtom() {
    const size_t offset = lexer_.pos();
    ASSIGN_OR_RETURN(CodePointSet taken, TakeSet());
    // What is written alike is one set.
    const RegexLexer::Flags& flags = lexer_.flags();
    auto [at, is_new] = sets_.try_emplace(
        {regex_.substr(offset, lexer_.pos() - offset), {flags.ignore_case, flags.dot_all}});
    if (is_new) {
      ranges_ += taken.ranges().size();
      if (ranges_ > kMaxNodes) {
        return lexer_.Error(
            absl::StrCat("too large: classes of more than ", kMaxNodes, " ranges of characters"),
            offset);
      }
      at->second = std::make_shared<const CodePointSet>(std::move(taken));
    }
    return RegexTree::Class(at->second, offset);
  }

  absl::Status OpenGroup() {
    const size_t open = lexer_.pos();
    if (groups_.size() > kMaxGrammarDepth) {
      return lexer_.Error(absl::StrCat("too deep: groups within groups, limit ", kMaxGrammarDepth),
                          open);
    }
    lexer_.Skip(1);
    RegexLexer::Flags flags = lexer_.flags();
    if (lexer_.Consume("?")) {
      if (lexer_.LooksAt("=") || lexer_.LooksAt("!") || lexer_.LooksAt("<=") ||
          lexer_.LooksAt("<!")) {
        return lexer_.Error("look-around ((?=, (?!, (?<=, (?<!) is not supported", open);
      }
      if (lexer_.LooksAt(">")) return lexer_.Error("an atomic group (?> is not supported", open);
      if (lexer_.Consume("P<") || lexer_.Consume("<")) {
        while (!lexer_.AtEnd() && lexer_.Peek() != '>') lexer_.Skip(1);
        if (!lexer_.Consume(">")) return lexer_.Error("a group name without '>'", open);
      } else {
        if (!lexer_.TakeFlags(&flags)) {
          return lexer_.Error(
              "flags other than i and s, or another (?...) construct, are not "
              "supported",
              open);
        }
        if (lexer_.Consume(")")) {  // to the end of the group that is open
          lexer_.set_flags(flags);
          return absl::OkStatus();
        }
        lexer_.Skip(1);
      }
    }
    groups_.emplace_back();
    groups_.back().open = open;
    groups_.back().flags = lexer_.flags();
    lexer_.set_flags(flags);
    return absl::OkStatus();
  }

  void CloseGroup() {
    EndAlternative();
    RegexTree tree = RegexTree::Alternatives(std::move(groups_.back().alternatives));
    lexer_.set_flags(groups_.back().flags);
    groups_.pop_back();
    groups_.back().sequence.push_back(std::move(tree));
  }

  // What may stand before or behind what a pattern finds.
  RegexTree Anything() {
    if (all_ == nullptr) all_ = std::make_shared<const CodePointSet>(CodePointSet::All());
    return RegexTree::Repeat(RegexTree::Class(all_, 0), 0, std::nullopt);
  }

  void EndAlternative() {
    std::vector<RegexTree>& sequence = groups_.back().sequence;
    if (groups_.size() == 1) {
      // Anchors at the outer ends say nothing but that nothing else is there.
      auto first = sequence.begin();
      while (first != sequence.end() && first->kind == Kind::kBegin) ++first;
      const bool begun = first != sequence.begin();
      sequence.erase(sequence.begin(), first);
      bool ended = false;
      for (; !sequence.empty() && sequence.back().kind == Kind::kEnd; sequence.pop_back()) {
        ended = true;
      }
      if (is_pattern_ && !begun) sequence.insert(sequence.begin(), Anything());
      if (is_pattern_ && !ended) sequence.push_back(Anything());
    }
    groups_.back().alternatives.push_back(RegexTree::Sequence(std::move(sequence)));
    sequence.clear();
  }

  absl::Status Quantify(int64_t min, std::optional<int64_t> max, bool can_repeat, size_t offset) {
    if (!can_repeat) return lexer_.Error("nothing to repeat", offset);
    if (lexer_.LooksAt("+")) {
      return lexer_.Error("a possessive quantifier is not supported", offset);
    }
    lexer_.Consume("?");
    RegexTree& last = groups_.back().sequence.back();
    last = RegexTree::Repeat(std::move(last), min, max);
    return absl::OkStatus();
  }

  const absl::string_view regex_;
  const bool is_pattern_;
  RegexLexer lexer_;
  std::vector<Group> groups_;
  // By what is written for them, and the flags there.
  HashMap<std::pair<absl::string_view, std::pair<bool, bool>>, std::shared_ptr<const CodePointSet>>
      sets_;
  std::shared_ptr<const CodePointSet> all_;
  size_t ranges_ = 0;  // of all sets together
};

// The class that `tree` is, some times; null where it is more.
const CodePointSet* UnitOf(const RegexTree& tree) {
  const RegexTree* at = &tree;
  // Only a class that stands once makes a unit when it is repeated.
  while (at->kind == Kind::kRepeat && at->parts[0].min_chars == 1 && at->parts[0].max_chars == 1) {
    at = &at->parts[0];
  }
  return at->kind == Kind::kClass ? at->set.get() : nullptr;
}

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
  ASSIGN_OR_RETURN(const RegexTree tree, RegexParser(regex, options.pattern).Parse());
  RegexPiece piece;
  piece.min_chars = tree.min_chars;
  piece.max_chars = tree.max_chars;
  ASSIGN_OR_RETURN(piece.fragment, CompileRegexTree(tree, options.form, builder));
  if (const CodePointSet* unit = UnitOf(tree); unit != nullptr) piece.unit = *unit;
  return piece;
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
