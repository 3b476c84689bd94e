// lm_calibrate(select_sql, function, argument, options): when a small model is to hand a row on
//   -> below, agreement, agreement_low, escalated, alone, rows, options
//
//   SELECT below, agreement, escalated, options FROM lm_calibrate('SELECT id, body FROM letters',
//     'lm_if', 'Does the writer ask for a refund?',
//     '{"model":"small","escalate":{"model":"large"},"agreement":0.95}');
//   SELECT id FROM letters WHERE lm_if(body, 'Does the writer ask for a refund?',
//     '{"model":"small","escalate":{"model":"large","below":0.83}}');          -- what it has found
//
// The SELECT has the columns id and text; `function` is lm_if, lm_classify or lm_extract, and
// `argument` its second one: the question, the labels, the schema. Both models are asked about a
// sample of the rows, all of them together, and the large one's answer is taken for right. `below`
// is the least number with which the cascade's answers agree with the large model's as often as is
// wanted:
//   below          for the option escalate: what the small model finds less probable is handed on
//   agreement      share of the sample whose answers then are the large model's, handed on or not
//   agreement_low  what that is at least among all rows, with 95% certainty (Wilson)
//   escalated      share of the sample that is handed on
//   alone          share that agrees where nothing is handed on
//   rows           of the sample: those that both have answered
//   options        the options to call the function with, as JSON
// Where no number is enough (the small model is certain, and wrong), it is the one with the best
// agreement, and agreement says how much that is.
//
// Options of its own:
//   agreement    the wanted share, 0.95 unless given
//   sample       how many rows are drawn, 200 unless given; the same ones in each call
//   instruction  of lm_classify
//   curve        true: a row for each number that makes a difference, ascending
// The others are the function's, for both models. NULL texts are left out, and so are rows that
// fail, where on_error is not 'error'. The answers are remembered: a following UPDATE asks the
// large model about nothing of the sample again.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/random.h"
#include "engine/base/status_macros.h"
#include "extension/batch/answer_queue.h"
#include "extension/connection/own_options.h"
#include "extension/questions/cascade.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/extraction.h"
#include "extension/questions/labels.h"
#include "extension/questions/yes_or_no.h"
#include "extension/tables/query_rows.h"
#include "extension/tables/rows_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

// What the function asks about a text.
struct Question {
  AnswerConstraint constraint;
  CallDefaults defaults = {};
  std::string system = {};
  std::string judged = {};  // lm_if's question; empty: another function
  std::string asked = {};   // as RowPrompt has it

  RowPrompt Row(const std::string& text, std::shared_ptr<const CallOptions> options) const {
    if (!judged.empty()) {
      return AskYesOrNo(std::optional(text), judged, std::move(options), asked);
    }
    return {.prompt = std::optional(text),
            .system = system,
            .options = std::move(options),
            .asked = asked};
  }
  std::string AnswerOf(const Generation& generation) const {
    if (judged.empty()) return generation.text;
    return ProbabilityOfYes(generation) > 0.5 ? "yes" : "no";
  }
  double ConfidenceIn(const Generation& generation) const {
    return (judged.empty() ? ConfidenceInAnswer : ConfidenceInYesOrNo)(generation);
  }
};

absl::StatusOr<Question> ReadQuestion(const std::string& function, const std::string& argument,
                                      const std::optional<std::string>& instruction) {
  if (instruction.has_value() && function != "lm_classify") {
    return absl::InvalidArgumentError("instruction is for lm_classify");
  }
  if (function == "lm_if" || function == "lm_filter") {
    return Question{.constraint = YesOrNo(),
                    .judged = absl::StrCat(argument, " Answer yes or no."),
                    .asked = argument};
  }
  if (function == "lm_classify") {
    ASSIGN_OR_RETURN(const std::vector<Label> labels, ParseLabels(argument));
    return Question{.constraint = {AnswerConstraint::Kind::kChoices, ChoicesOf(labels)},
                    .system = ClassifyPrompt(instruction, labels),
                    .asked = ClassifyWords(instruction, labels)};
  }
  if (function == "lm_extract") {
    ASSIGN_OR_RETURN(const std::string schema, ExtractionSchema(argument));
    return Question{.constraint = {AnswerConstraint::Kind::kExtraction, schema},
                    .defaults = {.on_length = OnLength::kComplete},
                    .system = ExtractionPrompt(schema),
                    .asked = ExtractionWords(schema)};
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "function must be lm_if, lm_classify or lm_extract, got '", function.substr(0, 100), "'"));
}

// A row that both models have answered.
struct Compared {
  double confidence;
  bool agrees;
};

// The share of all rows that are hits, at least, with 95% certainty, where `hits` of a sample of
// `count` are.
double LeastShare(double hits, double count) {
  constexpr double kZ = 1.96;
  const double share = hits / count, square = kZ * kZ;
  const double spread = kZ * std::sqrt(share * (1 - share) / count + square / (4 * count * count));
  return std::max((share + square / (2 * count) - spread) / (1 + square / count), 0.0);
}

// A number above `low` and at most `high`, with few digits.
double RoundedBetween(double low, double high) {
  const double middle = low + (high - low) / 2;
  for (double unit = 100; unit <= 1e9; unit *= 10) {
    const double rounded = std::round(middle * unit) / unit;
    if (low < rounded && rounded <= high) return rounded;
  }
  return high;
}

class CalibrateCursor : public RowsCursor {
 public:
  using RowsCursor::RowsCursor;

  absl::Status Fill(const TableArguments& args, Rows* rows) override {
    ASSIGN_OR_RETURN(const std::string sql, NeededText(args, 0, "select_sql"));
    ASSIGN_OR_RETURN(const std::string function, NeededText(args, 1, "function"));
    ASSIGN_OR_RETURN(const std::string argument, NeededText(args, 2, "argument"));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(3));
    ASSIGN_OR_RETURN(
        const OwnOptions own,
        OwnOptions::TakeOfCall(json, {"escalate", "agreement", "sample", "instruction", "curve"}));
    ASSIGN_OR_RETURN(const double wanted, own.Number("agreement", 0.95, 0, 1));
    ASSIGN_OR_RETURN(const int64_t most, own.Integer("sample", 200, 1, 100'000));
    ASSIGN_OR_RETURN(const std::optional<std::string> instruction, own.Text("instruction"));
    ASSIGN_OR_RETURN(const bool curve, own.Bool("curve", false));
    const Json* escalate = own.Value("escalate");
    if (escalate == nullptr) {
      return absl::InvalidArgumentError(
          "escalate is missing: {\"model\": \"small\", \"escalate\": {\"model\": \"large\"}}");
    }
    ASSIGN_OR_RETURN(const EscalateOption large, ParseEscalate(*escalate, /*needs_below=*/false));
    if (escalate->Has("below")) {
      return absl::InvalidArgumentError("escalate.below is what lm_calibrate finds");
    }
    ASSIGN_OR_RETURN(const Question question, ReadQuestion(function, argument, instruction));
    auto read = [&](const std::optional<std::string>& given)
        -> absl::StatusOr<std::shared_ptr<const CallOptions>> {
      ASSIGN_OR_RETURN(CallOptions options,
                       ReadCallOptions(given, connection(), question.defaults));
      if (NumDrawn(options.generation) > 0) {
        return absl::InvalidArgumentError(
            "vote, n and best_of: it goes by the probability of one answer");
      }
      return Constrained(std::move(options), question.constraint);
    };
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallOptions> first, read(own.rest()));
    ASSIGN_OR_RETURN(const std::shared_ptr<const CallOptions> other,
                     ReadForModel(own, large.model, read));
    ASSIGN_OR_RETURN(const std::vector<Sampled> sample,
                     Sample(sql, static_cast<size_t>(most), first->generation.on_error));
    ASSIGN_OR_RETURN(std::vector<Compared> compared, Ask(question, sample, first, other));
    if (compared.empty()) return absl::OkStatus();
    Weigh(std::move(compared), wanted, curve, own.rest(), large.model, rows);
    return absl::OkStatus();
  }

 private:
  struct Sampled {
    int64_t row = 0;  // of select_sql, from 1 on
    std::string text;
  };

  // Each row is as likely to be among them as any other.
  absl::StatusOr<std::vector<Sampled>> Sample(const std::string& sql, size_t most,
                                              OnError on_error) {
    constexpr uint64_t kSeed = 17;
    ASSIGN_OR_RETURN(QueryRows select,
                     QueryRows::PrepareTexts(connection().db(), sql, "select_sql"));
    std::vector<Sampled> sample;
    uint64_t seen = 0;
    for (int64_t number = 1;; ++number) {
      ASSIGN_OR_RETURN(std::optional<QueryRow> row, select.Next());
      if (!row.has_value()) return sample;
      if (!row->prompt.ok()) {
        if (on_error == OnError::kError) return OfRow(number, row->prompt.status());
        continue;
      }
      if (!row->prompt->has_value()) continue;
      ++seen;
      if (sample.size() < most) {
        sample.push_back({number, **std::move(row->prompt)});
      } else if (const uint64_t place = RandomBits(kSeed, seen) % seen; place < most) {
        sample[place] = {number, **std::move(row->prompt)};
      }
    }
  }

  absl::StatusOr<std::vector<Compared>> Ask(const Question& question,
                                            const std::vector<Sampled>& sample,
                                            const std::shared_ptr<const CallOptions>& first,
                                            const std::shared_ptr<const CallOptions>& other) {
    std::vector<Compared> compared;
    AnswerQueue small, large;
    size_t pushed = 0;
    for (const Sampled& asked : sample) {
      for (; pushed < sample.size() && small.HasRoom() && large.HasRoom(); ++pushed) {
        RowPrompt row = question.Row(sample[pushed].text, first);
        row.weighs = !row.chooses;
        small.Push(std::move(row));
        large.Push(question.Row(sample[pushed].text, other));
      }
      RETURN_IF_ERROR(small.AwaitFront(connection().db()));
      RETURN_IF_ERROR(large.AwaitFront(connection().db()));
      const Generation& guess = small.front().generation;
      const Generation& truth = large.front().generation;
      const absl::Status& failed = guess.status.ok() ? truth.status : guess.status;
      if (failed.ok()) {
        compared.push_back(
            {question.ConfidenceIn(guess), question.AnswerOf(guess) == question.AnswerOf(truth)});
      } else if (first->generation.on_error == OnError::kError) {
        return OfRow(asked.row, failed);
      }
      small.Pop();
      large.Pop();
    }
    return compared;
  }

  // The numbers that make a difference, of which each hands some more rows on.
  static void Weigh(std::vector<Compared> compared, double wanted, bool curve,
                    const std::optional<std::string>& json, const std::string& large, Rows* rows) {
    std::sort(compared.begin(), compared.end(),
              [](const Compared& a, const Compared& b) { return a.confidence < b.confidence; });
    const auto count = static_cast<double>(compared.size());
    double agree = static_cast<double>(std::count_if(compared.begin(), compared.end(),
                                                     [](const Compared& c) { return c.agrees; }));
    const double alone = agree / count;
    double below = 0;
    for (size_t handed_on = 0;;) {
      const bool is_enough = agree >= wanted * count;
      // What is certain is never below.
      const bool is_last = handed_on == compared.size() || compared[handed_on].confidence >= 1;
      if (curve || is_enough || is_last) {
        Json escalate = Json::MakeObject();
        escalate.Add("model", large).Add("below", below);
        Json options = Json::MakeObject();
        const std::optional<Json> given = json.has_value() ? Json::Parse(*json) : std::nullopt;
        if (given && given->is_object()) options = *given;
        options.Add("escalate", std::move(escalate));
        rows->push_back({below, agree / count, LeastShare(agree, count),
                         static_cast<double>(handed_on) / count, alone,
                         static_cast<int64_t>(compared.size()), options.Dump()});
        if (is_last || !curve) return;
      }
      const double confidence = compared[handed_on].confidence;
      while (handed_on < compared.size() && compared[handed_on].confidence == confidence) {
        agree += !compared[handed_on++].agrees;
      }
      below = handed_on < compared.size()
                  ? RoundedBetween(confidence, std::min(compared[handed_on].confidence, 1.0))
                  : 1;
    }
  }
};

constexpr TableFunctionSpec kSpec = {
    .name = "lm_calibrate",
    .columns =
        "below REAL, agreement REAL, agreement_low REAL, escalated REAL, alone REAL, "
        "rows INTEGER, options TEXT",
    .num_columns = 7,
    .arguments = {"select_sql", "function", "argument", "given_options"},
    .required = 4,
    .missing =
        "a SELECT, a function, its argument and options are wanted: "
        "lm_calibrate(select_sql, 'lm_if', question, options)",
    .estimated_rows = 1,
    .open = &MakeCursor<CalibrateCursor>};

}  // namespace

int RegisterCalibrate(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kSpec);
}

}  // namespace lm
