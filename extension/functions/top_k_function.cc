// lm_top_k(query, text, k [, options])   aggregate: JSON, the k texts that answer the query best
//
//   SELECT lm_top_k('a puzzle for one', body, 3) FROM notes;
//   SELECT author, value ->> 'text' FROM
//     (SELECT author, lm_top_k('a puzzle for one', body, 1) AS best FROM notes GROUP BY author),
//     json_each(best);
//
// An array of {"text", "score"}, the best first, as lm_rank scores them one by one: the probability
// of a yes, from the logits. Rows are asked about while further ones are read, and no more than k
// texts are kept; of equal scores the earlier row is the better.
//
// NULLs are passed over, be it the query or the text; without any other row the result is NULL.
// query, k and the options must be the same in all rows of a group. A row that fails ends the
// statement; with another on_error it is passed over. Not to be used as a window function.
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/binding/aggregate_function.h"
#include "extension/functions/functions.h"
#include "extension/questions/best_texts.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/relevance.h"

namespace lm {
namespace {

class TopK : public Aggregate {
 public:
  absl::Status Step(Call& row) override {
    ++rows_;
    if (row.IsNull(0) || row.IsNull(1)) return absl::OkStatus();
    RETURN_IF_ERROR(ReadArguments(row));
    absl::StatusOr<std::optional<std::string>> text = row.Text(1, "text");
    if (!answers_.HasRoom()) RETURN_IF_ERROR(TakeAnswer(row));
    under_way_.push_back({rows_, text.ok() ? **text : ""});
    answers_.Push(relevance_->Row(std::move(text)));
    return absl::OkStatus();
  }

  absl::Status Final(Call& call) override {
    if (!relevance_.has_value()) return absl::OkStatus();  // NULL
    while (!under_way_.empty()) RETURN_IF_ERROR(TakeAnswer(call));
    Json array = Json::MakeArray();
    for (BestTexts::Scored& one : best_->Take()) {
      Json object = Json::MakeObject();
      object.Add("text", std::move(one.text));
      object.Add("score", one.score);
      array.Append(std::move(object));
    }
    ResultJson(call.context(), array.Dump());
    return absl::OkStatus();
  }

 private:
  struct Waiting {
    int64_t row;
    std::string text;
  };

  // As tables read whole numbers: as text, too.
  static absl::StatusOr<int64_t> ReadK(Call& row) {
    if (sqlite3_value_type(row.value(2)) != SQLITE_BLOB) {
      ASSIGN_OR_RETURN(const std::optional<std::string> text, row.Text(2, "k"));
      int64_t k;
      if (absl::SimpleAtoi(text.value_or(""), &k) && k >= 1) return k;
    }
    return absl::InvalidArgumentError(
        absl::StrCat("k must be a whole number of at least 1, got ", ShownValue(row.value(2))));
  }

  absl::Status ReadArguments(Call& row) {
    ASSIGN_OR_RETURN(std::string query, NeededText(row, 0, "query"));
    ASSIGN_OR_RETURN(const int64_t k, ReadK(row));
    ASSIGN_OR_RETURN(std::optional<std::string> json, row.Text(3, "options"));
    if (relevance_.has_value()) {
      const char* other = query != query_ ? "query"
                          : k != k_       ? "k"
                          : json != json_ ? "options"
                                          : "";
      if (*other == '\0') return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("row ", rows_, ": ", other, " must be the same in all rows of a group"));
    }
    ASSIGN_OR_RETURN(CallOptions options, row.Options(json));
    ASSIGN_OR_RETURN(relevance_, Relevance::Create(query, std::move(options)));
    query_ = std::move(query);
    json_ = std::move(json);
    k_ = k;
    best_.emplace(k);
    return absl::OkStatus();
  }

  // An error is an interrupt, or that of a row.
  absl::Status TakeAnswer(Call& call) {
    RETURN_IF_ERROR(answers_.AwaitFront(call.connection().db()));
    const Generation& answer = answers_.front().generation;
    if (answer.status.ok()) {
      best_->Add(relevance_->Score(answer), std::move(under_way_.front().text));
    } else if (relevance_->on_error() == OnError::kError) {
      return OfRow(under_way_.front().row, answer.status);
    }
    answers_.Pop();
    under_way_.pop_front();
    return absl::OkStatus();
  }

  int64_t rows_ = 0;
  std::optional<Relevance> relevance_;  // nullopt: no row yet but NULLs
  std::string query_;
  std::optional<std::string> json_;
  int64_t k_ = 0;
  AnswerQueue answers_;
  std::deque<Waiting> under_way_;  // of answers_
  std::optional<BestTexts> best_;  // where relevance_ is
};

}  // namespace

int RegisterTopK(const std::shared_ptr<Connection>& connection) {
  return RegisterAggregate<TopK>(connection, {"lm_top_k", 3, 4, kDirectOnly | kReturnsJson});
}

}  // namespace lm
