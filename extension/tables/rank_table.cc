// lm_rank(query, texts [, top_k [, options]]): which of many texts answer a query best
//   -> rank, key, value, score
//
//   SELECT rank, value
//     FROM lm_rank('a chess puzzle', (SELECT json_group_array(body) FROM notes), 5);
//
//   -- Joined back to the rows.
//   SELECT notes.id, score
//     FROM lm_rank('a chess puzzle',
//                  (SELECT json_group_array(body ORDER BY id) FROM notes)) AS best
//     JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS key FROM notes) AS notes USING (key);
//
// `texts` is a JSON array of strings; key is a text's index in it, and rows come the best first:
// all, or the first `top_k`. Each text is asked about by itself, all together, and its score is the
// probability of a yes, from the logits (lm_score); equal scores keep the array's order. A model
// that is made for ranking (lm_rerank) gives its own score, brought to 0..1.
//
// With {"method":"pairwise"} two at a time are shown to the model, in both orders, and it says by
// its logits which of them answers the query better: a knock-out tournament, for n texts 2(n - 1)
// prompts and 2 log2(n) for each place after the first, with the texts of two in each of them. It
// is for few candidates that the pointwise score cannot tell apart; score is NULL.
//
// The other options are generate()'s. query NULL and texts NULL give no rows, and a null in the
// array has none. A text that fails ends the statement; with another on_error it has no row, but in
// a tournament, where it is one of two.
#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/connection/own_options.h"
#include "extension/host/flat_array.h"
#include "extension/questions/relevance.h"
#include "extension/questions/tournament.h"
#include "extension/tables/rows_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

struct RankedText {
  int64_t key = 0;
  std::string text = {};
  std::optional<double> score = {};
  absl::Status failure = {};  // of a text that none can be asked about
};

absl::StatusOr<std::vector<RankedText>> ReadTexts(absl::string_view json) {
  constexpr absl::string_view kWanted = "a string or null";
  std::vector<RankedText> texts;
  RETURN_IF_ERROR(ReadFlatArray(
      json, "texts", kWanted, [&](int64_t index, ArrayElement element) -> absl::Status {
        if (element.kind == ArrayElement::Kind::kBool) {
          return absl::InvalidArgumentError(
              absl::StrCat("texts[", index, "] must be ", kWanted, ", got ", element.text));
        }
        if (element.kind == ArrayElement::Kind::kNull) return absl::OkStatus();
        absl::Status failure = CheckText(element.text, absl::StrCat("texts[", index, "]"));
        texts.push_back({.key = index, .text = std::move(element.text)});
        texts.back().failure = std::move(failure);
        return absl::OkStatus();
      }));
  return texts;
}

absl::StatusOr<bool> IsPairwise(const OwnOptions& own) {
  ASSIGN_OR_RETURN(const std::optional<std::string> method, own.Text("method"));
  if (!method.has_value() || *method == "pointwise") return false;
  if (*method == "pairwise") return true;
  return absl::InvalidArgumentError(absl::StrCat("method must be 'pointwise' or 'pairwise', got '",
                                                 Printable(method->substr(0, 64)), "'"));
}

class RankCursor : public RowsCursor {
 public:
  using RowsCursor::RowsCursor;

  absl::Status Fill(const TableArguments& args, Rows* rows) override {
    ASSIGN_OR_RETURN(std::optional<std::string> query, args.Text(0));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(1));
    ASSIGN_OR_RETURN(const std::optional<int64_t> top_k, args.Integer(2));
    if (top_k.has_value() && *top_k < 1) {
      return absl::InvalidArgumentError(absl::StrCat("top_k must be at least 1, got ", *top_k));
    }
    ASSIGN_OR_RETURN(const std::optional<std::string> given, args.Text(3));
    ASSIGN_OR_RETURN(const OwnOptions own, OwnOptions::TakeOfCall(given, {"method"}));
    ASSIGN_OR_RETURN(const bool pairwise, IsPairwise(own));
    if (!query.has_value() || !json.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(std::vector<RankedText> texts, ReadTexts(*json));
    ASSIGN_OR_RETURN(CallOptions options, ReadCallOptions(own.rest(), connection()));
    const size_t most = std::min<size_t>(top_k.value_or(texts.size()), texts.size());
    if (pairwise) {
      RETURN_IF_ERROR(Compare(*std::move(query), std::move(options), most, &texts));
    } else {
      RETURN_IF_ERROR(Score(*std::move(query), std::move(options), &texts));
    }
    for (size_t i = 0; i < std::min(most, texts.size()); ++i) {
      const RankedText& text = texts[i];
      rows->push_back({static_cast<int64_t>(i) + 1, text.key, text.text,
                       text.score.has_value() ? Cell(*text.score) : Cell()});
    }
    return absl::OkStatus();
  }

 private:
  // Answers of all rows, in their order. An error is an interrupt.
  absl::StatusOr<std::vector<Generation>> Answers(size_t count,
                                                  absl::FunctionRef<RowPrompt(size_t)> row) {
    std::vector<Generation> answers;
    AnswerQueue queue;
    for (size_t pushed = 0; answers.size() < count;) {
      while (pushed < count && queue.HasRoom()) queue.Push(row(pushed++));
      RETURN_IF_ERROR(queue.AwaitFront(connection().db()));
      answers.push_back(queue.front().generation);
      queue.Pop();
    }
    return answers;
  }

  absl::Status Score(std::string query, CallOptions options, std::vector<RankedText>* texts) {
    ASSIGN_OR_RETURN(const Relevance relevance,
                     Relevance::Create(std::move(query), std::move(options)));
    if (relevance.on_error() == OnError::kError) RETURN_IF_ERROR(FirstFailure(*texts));
    std::erase_if(*texts, [](const RankedText& text) { return !text.failure.ok(); });
    ASSIGN_OR_RETURN(const std::vector<Generation> answers, Answers(texts->size(), [&](size_t i) {
                       return relevance.Row(std::optional((*texts)[i].text));
                     }));
    for (size_t i = 0; i < answers.size(); ++i) {
      RankedText& text = (*texts)[i];
      if (answers[i].status.ok()) {
        text.score = relevance.Score(answers[i]);
      } else if (relevance.on_error() == OnError::kError) {
        return OfTexts(absl::StrCat("texts[", text.key, "]"), answers[i].status);
      }
    }
    std::erase_if(*texts, [](const RankedText& text) { return !text.score.has_value(); });
    std::stable_sort(texts->begin(), texts->end(),
                     [](const RankedText& a, const RankedText& b) { return *a.score > *b.score; });
    return absl::OkStatus();
  }

  // Each match is played twice: the model may prefer what it reads first.
  absl::Status Compare(std::string query, CallOptions options, size_t most,
                       std::vector<RankedText>* texts) {
    RETURN_IF_ERROR(FirstFailure(*texts));
    ASSIGN_OR_RETURN(const Comparison comparison,
                     Comparison::Create(std::move(query), std::move(options)));
    auto play = [&](absl::Span<const Match> matches) -> absl::StatusOr<std::vector<double>> {
      ASSIGN_OR_RETURN(const std::vector<Generation> answers,
                       Answers(2 * matches.size(), [&](size_t i) {
                         auto [a, b] = matches[i / 2];
                         if (i % 2 == 1) std::swap(a, b);
                         return comparison.Row((*texts)[a].text, (*texts)[b].text);
                       }));
      std::vector<double> results;
      for (size_t i = 0; i < matches.size(); ++i) {
        for (const Generation* answer : {&answers[2 * i], &answers[2 * i + 1]}) {
          if (answer->status.ok()) continue;
          const int64_t first = (*texts)[matches[i].first].key;
          const int64_t second = (*texts)[matches[i].second].key;
          return OfTexts(absl::StrCat("texts[", first, "] and texts[", second, "]"),
                         answer->status);
        }
        // Exactly a half where both orders are as good.
        const double lead = comparison.Score(answers[2 * i]) - comparison.Score(answers[2 * i + 1]);
        results.push_back((1 + lead) / 2);
      }
      return results;
    };
    ASSIGN_OR_RETURN(const std::vector<size_t> best, PlayTournament(texts->size(), most, play));
    std::vector<RankedText> ranked;
    for (size_t i : best) ranked.push_back(std::move((*texts)[i]));
    *texts = std::move(ranked);
    return absl::OkStatus();
  }

  static absl::Status FirstFailure(absl::Span<const RankedText> texts) {
    for (const RankedText& text : texts) RETURN_IF_ERROR(text.failure);
    return absl::OkStatus();
  }

  static absl::Status OfTexts(absl::string_view which, const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(which, ": ", status.message()));
  }
};

constexpr TableFunctionSpec kRankSpec = {
    .name = "lm_rank",
    .columns = "rank INTEGER, key INTEGER, value TEXT, score REAL",
    .num_columns = 4,
    .arguments = {"query", "texts", "top_k", "options"},
    .required = 2,
    .missing = "a query or its texts are missing: lm_rank(query, texts)",
    .open = &MakeCursor<RankCursor>};

}  // namespace

int RegisterRank(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kRankSpec);
}

}  // namespace lm
