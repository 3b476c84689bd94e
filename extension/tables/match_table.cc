// lm_match(left_sql, right_sql, question [, options]): a join whose condition is a question
//   -> left_id, right_id, left_text, right_text, similarity, probability
//
//   SELECT left_id, right_id FROM lm_match('SELECT id, body FROM letters',
//     'SELECT id, name FROM products', 'Is the first about the second?');
//
// Each SELECT has the columns id (any value, handed through) and text. For each row of the left one
// the `candidates` (5) rows of the right one whose embeddings are most like its own are asked
// about; {"candidates":0} asks about all pairs. {"blocking":"fts5"} chooses those that have the
// most words in common with it instead, the rarer the better, with SQLite's FTS5 and without a
// model: blind to what is said in other words, and quicker where embedding a text takes longer than
// a millisecond or two. The model reads both texts,
//   First: {left}
//
//   Second: {right}
//
//   {question} Answer yes or no.
// and its logits say how probable a yes is: pairs for which that is more than `threshold` (0.5) are
// rows, in the order of the left SELECT, the most similar first (`similarity` is the cosine, with
// fts5 the score of bm25, which has no bound). The pairs of one row on the left share its text,
// which is read once. {"threshold":0} shows what else was asked about. With fts5, rows that have no
// word in common are no pair, whatever `candidates` says.
//
// Other options are those of lm_embed (`pooling`, `task`, `dimensions`), which choose the
// candidates, and of lm_if. `embed_model` names another model for the candidates. NULLs match
// nothing. A text or a pair that fails ends the statement; with another on_error it matches
// nothing. So does a pair of which half the votes are a yes, unless there is a `threshold`.
#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/host/interrupt.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/yes_or_no.h"
#include "extension/tables/embedded_rows.h"
#include "extension/tables/kept_scan.h"
#include "extension/tables/tables.h"
#include "extension/tables/text_index.h"

namespace lm {
namespace {

// Of a question's options those that the embeddings for its candidates have, too.
GenerationOptions OfEmbedding(const GenerationOptions& question) {
  GenerationOptions options;
  options.lora = question.lora;
  options.on_error = question.on_error;
  options.on_overflow = question.on_overflow;
  options.timeout_ms = question.timeout_ms;
  options.max_seconds = question.max_seconds;
  options.max_total_tokens = question.max_total_tokens;
  options.max_cost = question.max_cost;
  options.cache = question.cache;
  options.priority = question.priority;
  return options;
}

class MatchCursor : public TableCursor {
 public:
  enum Column { kLeftId, kRightId, kLeftText, kRightText, kSimilarity, kProbability };

  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    left_.clear();
    right_.clear();
    candidates_.clear();
    pairs_.clear();
    matches_.clear();
    queue_.emplace();
    words_.reset();
    next_left_ = at_ = 0;
    kept_.Begin(connection().db());
    ASSIGN_OR_RETURN(const std::optional<std::string> left, args.Text(0));
    ASSIGN_OR_RETURN(const std::optional<std::string> right, args.Text(1));
    ASSIGN_OR_RETURN(const std::string question, NeededText(args, 2, "question"));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(3));
    ASSIGN_OR_RETURN(
        const OwnOptions own,
        OwnOptions::TakeOfCall(json, {"threshold", "candidates", "blocking", "embed_model",
                                      "pooling", "task", "dimensions"}));
    ASSIGN_OR_RETURN(threshold_, own.Number("threshold", 0.5, 0, 1));
    ties_fail_ = !own.Has("threshold");
    ASSIGN_OR_RETURN(most_candidates_, own.Integer("candidates", 5, 0, INT32_MAX));
    ASSIGN_OR_RETURN(const std::optional<std::string> embed_model, own.Text("embed_model"));
    ASSIGN_OR_RETURN(const std::optional<std::string> blocking, own.Text("blocking"));
    const bool by_words = blocking == "fts5";
    if (blocking.has_value() && !by_words && blocking != "embeddings") {
      return absl::InvalidArgumentError(
          absl::StrCat("blocking must be 'embeddings' or 'fts5', got '", *blocking, "'"));
    }
    for (const char* name : {"embed_model", "pooling", "task", "dimensions"}) {
      if (by_words && own.Has(name)) {
        return absl::InvalidArgumentError(
            absl::StrCat(name, " is for blocking by embeddings, not by 'fts5'"));
      }
    }
    if (!left.has_value() || !right.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(CallOptions options, ReadCallOptions(own.rest(), connection()));
    asked_ = question;
    question_ = absl::StrCat(question, " Answer yes or no.");
    if (by_words) {
      const OnError on_error = options.generation.on_error;
      ASSIGN_OR_RETURN(options_, Constrained(std::move(options), YesOrNo()));
      ASSIGN_OR_RETURN(left_, TextRows(connection().db(), *left, "left_sql", on_error));
      ASSIGN_OR_RETURN(right_, TextRows(connection().db(), *right, "right_sql", on_error));
      RETURN_IF_ERROR(IndexRight());
      return FindMatch();
    }
    CallOptions embed_options{options.model, OfEmbedding(options.generation)};
    if (embed_model.has_value()) {
      ASSIGN_OR_RETURN(embed_options.model, connection().Use(*embed_model));
      embed_options.generation.lora.reset();  // names those of `model`
    }
    ASSIGN_OR_RETURN(const Embedder embedder, Embedder::Create(own, std::move(embed_options)));
    ASSIGN_OR_RETURN(options_, Constrained(std::move(options), YesOrNo()));
    ASSIGN_OR_RETURN(left_, EmbedRows(connection().db(), *left, "left_sql", embedder));
    ASSIGN_OR_RETURN(right_, EmbedRows(connection().db(), *right, "right_sql", embedder));
    RETURN_IF_ERROR(CheckSides());
    return FindMatch();
  }

  bool can_rewind() const override { return kept_.IsCurrent(); }
  void Rewind() override { at_ = 0; }

  bool AtEnd() const override { return at_ == matches_.size(); }
  absl::Status Next() override {
    ++at_;
    return AtEnd() ? FindMatch() : absl::OkStatus();
  }
  int64_t rowid() const override { return static_cast<int64_t>(at_); }

  absl::Status Value(int column, sqlite3_context* context) override {
    const Pair& pair = matches_[at_].pair;
    const EmbeddedRow& left = left_[pair.left];
    const EmbeddedRow& right = right_[pair.right];
    switch (column) {
      case kLeftId:
        sqlite3_result_value(context, left.id.get());
        break;
      case kRightId:
        sqlite3_result_value(context, right.id.get());
        break;
      case kLeftText:
        ResultText(context, *left.text);
        break;
      case kRightText:
        ResultText(context, *right.text);
        break;
      case kSimilarity:
        sqlite3_result_double(context, pair.similarity);
        break;
      case kProbability:
        sqlite3_result_double(context, matches_[at_].probability);
        break;
    }
    return absl::OkStatus();
  }

 private:
  struct Pair {
    size_t left;
    size_t right;
    double similarity;
  };
  struct Match {
    Pair pair;
    double probability;
  };

  // Each side's vectors are as long as its others.
  absl::Status CheckSides() const {
    auto has_text = [](const EmbeddedRow& row) { return row.text.has_value(); };
    const auto left = std::find_if(left_.begin(), left_.end(), has_text);
    const auto right = std::find_if(right_.begin(), right_.end(), has_text);
    if (left == left_.end() || right == right_.end()) return absl::OkStatus();
    return CheckAlikeLong(*right, absl::StrCat("right_sql: row ", right - right_.begin() + 1),
                          *left, absl::StrCat("row ", left - left_.begin() + 1, " of left_sql"));
  }

  absl::Status IndexRight() {
    absl::StatusOr<TextIndex> index = TextIndex::Create();
    if (!index.ok()) {
      return absl::Status(index.status().code(),
                          absl::StrCat("blocking 'fts5': ", index.status().message()));
    }
    InterruptPoll poll(connection().db());
    for (size_t right = 0; right < right_.size(); ++right) {
      if (poll.Interrupted()) return absl::CancelledError("interrupted");
      if (right_[right].text.has_value()) RETURN_IF_ERROR(index->Add(right, *right_[right].text));
    }
    words_.emplace(*std::move(index));
    return absl::OkStatus();
  }

  // The next row's candidates, the last first.
  absl::Status FindCandidates() {
    const size_t left = next_left_++;
    if (!left_[left].text.has_value()) return absl::OkStatus();
    if (words_.has_value()) {
      ASSIGN_OR_RETURN(const std::vector<FoundText> found,
                       words_->Search(*left_[left].text, static_cast<size_t>(most_candidates_)));
      for (const FoundText& one : found) candidates_.push_back({left, one.number, one.score});
      std::reverse(candidates_.begin(), candidates_.end());
      return absl::OkStatus();
    }
    for (size_t right = 0; right < right_.size(); ++right) {
      if (!right_[right].text.has_value()) continue;
      candidates_.push_back({left, right, Cosine(left_[left], right_[right])});
    }
    const size_t all = candidates_.size();
    const size_t most = most_candidates_ == 0 ? all : std::min<size_t>(most_candidates_, all);
    std::partial_sort(candidates_.begin(), candidates_.begin() + most, candidates_.end(),
                      [](const Pair& a, const Pair& b) {
                        return a.similarity != b.similarity ? a.similarity > b.similarity
                                                            : a.right < b.right;
                      });
    candidates_.resize(most);
    std::reverse(candidates_.begin(), candidates_.end());
    return absl::OkStatus();
  }

  absl::Status PushMore() {
    InterruptPoll poll(connection().db());
    while (queue_->HasRoom() && (!candidates_.empty() || next_left_ < left_.size())) {
      if (poll.Interrupted()) return absl::CancelledError("interrupted");
      if (candidates_.empty()) {
        RETURN_IF_ERROR(FindCandidates());
        continue;
      }
      const Pair pair = candidates_.back();
      candidates_.pop_back();
      std::string texts =
          absl::StrCat("First: ", *left_[pair.left].text, "\n\nSecond: ", *right_[pair.right].text);
      queue_->Push(AskYesOrNo(std::optional(std::move(texts)), question_, options_, asked_));
      pairs_.push_back(pair);
    }
    return absl::OkStatus();
  }

  void Drop() {
    queue_->Pop();
    pairs_.pop_front();
  }

  // Waits for the first pair that matches, and drops it with those before it.
  absl::Status FindMatch() {
    for (;; Drop()) {
      RETURN_IF_ERROR(PushMore());
      if (pairs_.empty()) return absl::OkStatus();
      RETURN_IF_ERROR(queue_->AwaitFront(connection().db()));
      const Generation& answer = queue_->front().generation;
      const int32_t votes = options_->generation.vote;
      absl::Status status = answer.status;
      if (status.ok() && ties_fail_) status = CheckNoTie(answer, votes);
      if (!status.ok()) {
        if (options_->generation.on_error != OnError::kError) continue;
        const Pair& pair = pairs_.front();
        return absl::Status(status.code(), absl::StrCat("rows ", pair.left + 1, " and ",
                                                        pair.right + 1, ": ", status.message()));
      }
      const double probability = ProbabilityOfYes(answer, votes);
      if (!IsYes(probability, threshold_)) continue;
      matches_.push_back({pairs_.front(), probability});
      Drop();
      return absl::OkStatus();
    }
  }

  std::shared_ptr<const CallOptions> options_;
  std::string asked_;
  std::string question_;  // the same in our words
  double threshold_ = 0.5;
  bool ties_fail_ = true;  // half of the votes
  int64_t most_candidates_ = 0;
  std::vector<EmbeddedRow> left_;
  std::vector<EmbeddedRow> right_;
  std::optional<TextIndex> words_;  // of the texts on the right; none: by their embeddings
  size_t next_left_ = 0;            // whose candidates are not known yet
  std::vector<Pair> candidates_;    // of the one before, that are not under way yet
  std::deque<Pair> pairs_;          // under way
  std::optional<AnswerQueue> queue_;
  std::vector<Match> matches_;  // so far, all of them: the scan may begin again
  size_t at_ = 0;
  KeptScan kept_;
};

constexpr TableFunctionSpec kMatchSpec = {
    .name = "lm_match",
    .columns =
        "left_id, right_id, left_text TEXT, right_text TEXT, similarity REAL, probability REAL",
    .num_columns = 6,
    .arguments = {"left_sql", "right_sql", "question", "options"},
    .required = 3,
    .missing = "two SELECTs and a question are wanted: lm_match(left_sql, right_sql, question)",
    .estimated_rows = 1000,
    .open = &MakeCursor<MatchCursor>};

}  // namespace

int RegisterMatch(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kMatchSpec);
}

}  // namespace lm
