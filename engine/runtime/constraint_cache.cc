#include "engine/runtime/constraint_cache.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/constraint.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"

namespace lm {
namespace {

using Kind = AnswerConstraint::Kind;

// Work of a grammar between two checkpoints.
constexpr int64_t kCheckedWork = 5'000'000;

absl::StatusOr<std::shared_ptr<const Grammar>> CompileChoiceList(absl::string_view text) {
  const std::optional<Json> list = Json::Parse(text);
  RETURN_IF_ERROR(Checkpoint());  // which may have kept it from being read to its end
  if (!list || !list->is_array())
    return absl::InvalidArgumentError("choices must be an array of strings");
  std::vector<absl::string_view> choices;
  for (const Json& choice : list->array()) {
    if (!choice.is_string()) {
      return absl::InvalidArgumentError("choices must be an array of strings");
    }
    choices.push_back(choice.string());
  }
  return CompileChoices(choices);
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Grammar>> CompileNotation(const AnswerConstraint& constraint) {
  const SchemaOptions options = {
      .spaces = constraint.json_spaces ? JsonSpaces::kAllowed : JsonSpaces::kNone,
      .additional = constraint.additional,
      .strict = constraint.strict_schema};
  switch (constraint.kind) {
    case Kind::kChoices:
      return CompileChoiceList(constraint.text);
    case Kind::kRegex:
      return CompileRegex(constraint.text);
    case Kind::kSchema:
      return CompileJsonSchema(constraint.text, options);
    case Kind::kGrammar:
      return CompileGbnf(constraint.text);
    case Kind::kExtraction:
      return CompileExtractionSchema(constraint.text, options);
    case Kind::kNone:
      break;
  }
  return absl::InternalError("there is no constraint to compile");
}

std::vector<int32_t> AnswerTokens(const Tokenizer& tokenizer, absl::string_view text) {
  std::vector<int32_t> ids;
  if (!tokenizer.EncodeInside(text, &ids).ok()) ids.clear();
  return ids;
}

absl::StatusOr<std::shared_ptr<const CompiledConstraint>> ConstraintCache::Get(
    const AnswerConstraint& constraint) {
  {
    absl::MutexLock lock(&mutex_);
    if (auto known = index_.find(constraint); known != index_.end()) {
      entries_.splice(entries_.begin(), entries_, known->second);
      return known->second->second;
    }
  }
  ASSIGN_OR_RETURN(std::shared_ptr<const CompiledConstraint> compiled, Compile(constraint));
  absl::MutexLock lock(&mutex_);
  if (auto known = index_.find(constraint); known != index_.end()) return known->second->second;
  entries_.emplace_front(constraint, compiled);
  index_[constraint] = entries_.begin();
  if (entries_.size() > kMaxConstraints) {
    index_.erase(entries_.back().first);
    entries_.pop_back();
  }
  return compiled;
}

absl::StatusOr<std::shared_ptr<const CompiledConstraint>> ConstraintCache::Compile(
    const AnswerConstraint& constraint) {
  ASSIGN_OR_RETURN(std::shared_ptr<const Grammar> grammar, CompileNotation(constraint));
  ASSIGN_OR_RETURN(std::shared_ptr<const TokenTrie> trie, Trie());
  ASSIGN_OR_RETURN(std::shared_ptr<Constraint> bound,
                   Constraint::Create(std::move(grammar), std::move(trie), kMaxBytesEach));
  GrammarMatcher matcher(std::move(bound));
  auto tokenize = [this](absl::string_view text) { return AnswerTokens(tokenizer_, text); };
  absl::StatusOr<std::vector<int32_t>> forced;
  do {
    RETURN_IF_ERROR(Checkpoint());
    int64_t work = kCheckedWork;
    forced = matcher.ForcedTokens(tokenize, /*tail=*/"", &work);
  } while (absl::IsUnavailable(forced.status()));
  RETURN_IF_ERROR(Checkpoint());  // which leaves tokens out
  RETURN_IF_ERROR(forced.status());
  std::vector<int32_t> start = *std::move(forced);
  for (int32_t token : start) RETURN_IF_ERROR(matcher.Accept(token));
  return std::make_shared<const CompiledConstraint>(
      CompiledConstraint{std::move(matcher), std::move(start)});
}

absl::StatusOr<std::shared_ptr<const TokenTrie>> ConstraintCache::Trie() {
  absl::MutexLock lock(&mutex_);
  if (trie_ != nullptr) return trie_;
  std::vector<absl::string_view> bytes;
  std::vector<int32_t> ends;
  for (int32_t id = 0; id < tokenizer_.size(); ++id) {
    const bool sayable = tokenizer_.IsSayable(id);  // others are like control tokens
    const absl::string_view said = sayable ? tokenizer_.TokenBytes(id) : "";
    bytes.push_back(absl::StrContains(said, '\0') ? "" : said);  // no text has a NUL
    if (sayable && tokenizer_.IsEndOfGeneration(id)) ends.push_back(id);
  }
  ASSIGN_OR_RETURN(trie_, TokenTrie::Create(bytes, ends));
  return trie_;
}

}  // namespace lm
