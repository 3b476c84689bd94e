#include "engine/grammar/regex_parser.h"

#include <algorithm>
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
#include "engine/grammar/regex_look_ahead.h"

namespace lm {
namespace {

using Kind = RegexTree::Kind;

// One of the outermost alternatives of an expression.
struct Alternative {
  RegexTree tree;
  std::vector<LookAhead> look_aheads;  // at its beginning
};

// Keeps the groups that are open on a stack of its own.
class RegexParser {
 public:
  RegexParser(absl::string_view regex, bool is_pattern)
      : regex_(regex), is_pattern_(is_pattern), lexer_(regex, is_pattern) {}

  absl::StatusOr<std::vector<Alternative>> Parse() {
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
          can_repeat = CloseGroup();
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
    return std::move(alternatives_);
  }

 private:
  struct Group {
    size_t open = 0;
    RegexLexer::Flags flags;  // behind it
    bool is_look_ahead = false;
    bool is_negated = false;
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
      const bool looks_ahead = lexer_.LooksAt("=") || lexer_.LooksAt("!");
      if (looks_ahead && IsAtBegin()) return OpenLookAhead(open);
      if (looks_ahead || lexer_.LooksAt("<=") || lexer_.LooksAt("<!")) {
        return lexer_.Error(
            "look-around ((?=, (?!, (?<=, (?<!) is not supported, but for look-ahead at the "
            "beginning, behind ^",
            open);
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

  // Where each text begins, and nothing but look-ahead has been read of this alternative.
  bool IsAtBegin() const {
    const std::vector<RegexTree>& sequence = groups_.back().sequence;
    return groups_.size() == 1 && !(is_pattern_ && sequence.empty()) &&
           std::all_of(sequence.begin(), sequence.end(),
                       [](const RegexTree& tree) { return tree.kind == Kind::kBegin; });
  }

  absl::Status OpenLookAhead(size_t open) {
    if (++num_look_aheads_ > kMaxLookAheads) {
      return lexer_.Error(absl::StrCat("more than ", kMaxLookAheads, " look-aheads"), open);
    }
    groups_.emplace_back();
    groups_.back().open = open;
    groups_.back().flags = lexer_.flags();
    groups_.back().is_look_ahead = true;
    groups_.back().is_negated = lexer_.LooksAt("!");
    lexer_.Skip(1);
    return absl::OkStatus();
  }

  // Whether it may be repeated.
  bool CloseGroup() {
    EndAlternative();
    Group group = std::move(groups_.back());
    groups_.pop_back();
    lexer_.set_flags(group.flags);
    RegexTree tree = RegexTree::Alternatives(std::move(group.alternatives));
    if (!group.is_look_ahead) {
      groups_.back().sequence.push_back(std::move(tree));
      return true;
    }
    std::vector<RegexTree> whole;
    whole.push_back(std::move(tree));
    whole.push_back(Anything());
    look_aheads_.push_back({RegexTree::Sequence(std::move(whole)), group.is_negated});
    return false;
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
    RegexTree tree = RegexTree::Sequence(std::move(sequence));
    sequence.clear();
    if (groups_.size() > 1) {
      groups_.back().alternatives.push_back(std::move(tree));
    } else {
      alternatives_.push_back({std::move(tree), std::move(look_aheads_)});
      look_aheads_.clear();
    }
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
  std::vector<Group> groups_;              // the first one is around all
  std::vector<Alternative> alternatives_;  // that have been read
  std::vector<LookAhead> look_aheads_;     // of the one that is being read
  size_t num_look_aheads_ = 0;
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
  ASSIGN_OR_RETURN(std::vector<Alternative> alternatives,
                   RegexParser(regex, options.pattern).Parse());
  RegexPiece piece;
  piece.min_chars = kUnboundedChars;
  std::vector<Fragment> fragments;
  std::vector<RegexTree> trees;  // without look-ahead
  for (Alternative& alternative : alternatives) {
    piece.min_chars = std::min(piece.min_chars, alternative.tree.min_chars);
    piece.max_chars = std::max(piece.max_chars, alternative.tree.max_chars);
    if (alternative.look_aheads.empty()) {
      trees.push_back(std::move(alternative.tree));
      continue;
    }
    ASSIGN_OR_RETURN(
        const Fragment fragment,
        CompileWithLookAheads(alternative.tree, alternative.look_aheads, options.form, builder));
    fragments.push_back(fragment);
  }
  if (!trees.empty()) {
    const RegexTree tree = RegexTree::Alternatives(std::move(trees));
    ASSIGN_OR_RETURN(const Fragment fragment, CompileRegexTree(tree, options.form, builder));
    const CodePointSet* const unit = UnitOf(tree);
    if (unit != nullptr && fragments.empty()) piece.unit = *unit;
    fragments.push_back(fragment);
  }
  piece.fragment = fragments.size() == 1 ? fragments[0] : builder->Alternate(fragments);
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
