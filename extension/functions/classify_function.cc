// lm_classify(text, labels [, instruction [, options]])   TEXT: one of the labels
//
//   SELECT lm_classify('The battery lasts two days.', '["praise","complaint","question"]');
//   SELECT lm_classify(body, '{"bug":"something does not work","wish":"something is missing"}',
//                      'Sort the letter to the maintainers.') AS kind, count(*)
//     FROM letters GROUP BY kind;
//
// `labels` is a JSON array of strings, or an object from each label to what it means. The answer is
// exactly one of them: the model can say nothing else. The model is told
//   {instruction} Answer with one of: {labels}.          without one: Classify the text as one of
//   ...
// and the descriptions, a line each, in the system prompt, which all rows share; the text is the
// user's message. Labels that differ in their first token cost no decode step.
//
// With {"vote": 5} the answer is what most of five answers say, at a temperature of 1 unless the
// options name another; a tie is the row's failure (on_error). With multi each label has its votes,
// and half of them a tie unless there is a `threshold`.
//
// Options of its own:
//   multi      true: all labels that apply, as a JSON array in the order of `labels`. Each is asked
//              about by itself, behind the text, which is read once:
//                {instruction} Does the label "{label}" apply, which means: {description}? ...
//              A description that ends with a question mark is the question. A label applies where
//              p(yes) / (p(yes) + p(no)) is more than `threshold`
//   threshold  of multi: 0.5 unless given, from 0 to 1; with 0 all apply
//   scores     true: a JSON object from each label to its probability, of the same prompt, by the
//              logits (extension/questions/label_scores.h): they sum to 1. With multi, the
//              probability that it applies; those are independent of each other
//   escalate   {"model": "large", "below": 0.9}: where the model finds its label less probable than
//              `below`, among the labels, the large model is asked; lm_calibrate finds the number
// The subtype of arrays and objects is JSON.
//
// A NULL text gives NULL. Labels that cannot be used, or are of another type, are errors that name
// them.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"
#include "extension/questions/cascade.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/label_scores.h"
#include "extension/questions/labels.h"
#include "extension/questions/yes_or_no.h"

namespace lm {
namespace {

struct Classification {
  std::vector<Label> labels;
  std::optional<std::string> instruction;
  bool multi = false;
  bool scores = false;
  double threshold = 0.5;
  bool ties_fail = true;
};

absl::StatusOr<Classification> ReadClassification(const Call& call, const OwnOptions& own) {
  Classification task;
  ASSIGN_OR_RETURN(const std::string json, NeededText(call, 1, "labels"));
  ASSIGN_OR_RETURN(task.labels, ParseLabels(json));
  ASSIGN_OR_RETURN(task.instruction, call.Text(2, "instruction"));
  if (task.instruction.has_value()) {
    RETURN_IF_ERROR(CheckNotOptions(*task.instruction, "instruction"));
  }
  ASSIGN_OR_RETURN(task.multi, own.Bool("multi", false));
  ASSIGN_OR_RETURN(task.scores, own.Bool("scores", false));
  ASSIGN_OR_RETURN(task.threshold, own.Number("threshold", 0.5, 0, 1));
  task.ties_fail = !own.Has("threshold") && !task.scores;
  if (own.Has("escalate") && (task.multi || task.scores)) {
    return absl::InvalidArgumentError("escalate is for one label: neither with multi nor scores");
  }
  if (own.Has("threshold") && !task.multi) {
    return absl::InvalidArgumentError(
        "threshold is for {\"multi\": true}; lm_classify_scores gives the probability of each "
        "label");
  }
  if (own.Has("threshold") && task.scores) {
    return absl::InvalidArgumentError(
        "threshold is for the labels that apply: with scores each has its probability");
  }
  return task;
}

// A row's answer, or the call's result already: NULL where a shadow is not to know it, and what
// on_error makes of a failure.
absl::StatusOr<std::optional<Generation>> AnswerOf(Call& call, RowPrompt row) {
  ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, AwaitRow(call, std::move(row)));
  if (!pending.has_value()) return std::optional<Generation>();
  const RowAnswer& answer = pending->answer();
  if (answer.generation.status.ok()) return std::optional(answer.generation);
  RETURN_IF_ERROR(ResultAnswer(call.context(), answer, pending->on_error()));
  return std::optional<Generation>();
}

void ResultScores(Call& call, const std::vector<Label>& labels, const std::vector<double>& scores) {
  Json object = Json::MakeObject();
  for (size_t i = 0; i < labels.size(); ++i) object.Add(labels[i].name, scores[i]);
  ResultJson(call.context(), object.Dump());
}

absl::Status OfLabel(const Label& label, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("label '", label.name, "': ", status.message()));
}

absl::Status ClassifyEach(Call& call, const Classification& task, CallOptions options) {
  ASSIGN_OR_RETURN(const std::shared_ptr<const CallOptions> asked,
                   Constrained(std::move(options), YesOrNo()));
  std::vector<double> scores;
  for (const Label& label : task.labels) {
    ASSIGN_OR_RETURN(
        const std::optional<PendingAnswer> pending,
        AwaitRow(call, AskYesOrNo(call.Text(0, "text"), LabelQuestion(task.instruction, label),
                                  asked, ClassifyWords(task.instruction, task.labels))));
    if (!pending.has_value()) continue;  // a shadow asks about all labels
    const int32_t votes = asked->generation.vote;
    RowAnswer answer = pending->answer();
    absl::Status& status = answer.generation.status;
    if (status.ok() && task.ties_fail) {
      status = OfLabel(label, CheckNoTie(answer.generation, votes));
    }
    if (!status.ok()) return ResultAnswer(call.context(), answer, pending->on_error());
    scores.push_back(ProbabilityOfYes(answer.generation, votes));
  }
  if (scores.size() < task.labels.size()) return absl::OkStatus();
  if (task.scores) {
    ResultScores(call, task.labels, scores);
    return absl::OkStatus();
  }
  Json applying = Json::MakeArray();
  for (size_t i = 0; i < scores.size(); ++i) {
    if (IsYes(scores[i], task.threshold)) applying.Append(task.labels[i].name);
  }
  ResultJson(call.context(), applying.Dump());
  return absl::OkStatus();
}

absl::Status Classify(Call& call) {
  if (call.IsNull(0)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::optional<std::string> json, call.Text(3, "options"));
  ASSIGN_OR_RETURN(const OwnOptions own,
                   OwnOptions::TakeOfCall(json, {"multi", "scores", "threshold", "escalate"}));
  ASSIGN_OR_RETURN(const Classification task, ReadClassification(call, own));
  ASSIGN_OR_RETURN(CallOptions options, call.Options(own.rest()));
  if (task.multi) return ClassifyEach(call, task, std::move(options));
  RowPrompt row{.prompt = call.Text(0, "text"),
                .system = ClassifyPrompt(task.instruction, task.labels),
                .asked = ClassifyWords(task.instruction, task.labels)};
  if (!task.scores) {
    const AnswerConstraint choices{AnswerConstraint::Kind::kChoices, ChoicesOf(task.labels)};
    auto read = [&](const std::optional<std::string>& given) {
      return ConstrainedOptions(call, given, choices);
    };
    ASSIGN_OR_RETURN(row.options, Constrained(std::move(options), choices));
    RETURN_IF_ERROR(AddEscalation(own, ConfidenceInAnswer, read, &row));
    return AnswerRow(call, std::move(row));
  }
  row.options = std::make_shared<const CallOptions>(std::move(options));
  ASSIGN_OR_RETURN(const std::optional<std::vector<double>> scores,
                   ScoreLabels(row, NamesOf(task.labels), [&call](RowPrompt asked) {
                     return AnswerOf(call, std::move(asked));
                   }));
  if (scores.has_value()) ResultScores(call, task.labels, *scores);
  return absl::OkStatus();
}

}  // namespace

int RegisterClassify(const std::shared_ptr<Connection>& connection) {
  return RegisterScalar<&Classify>(connection, {"lm_classify", 2, 4, kDirectOnly | kReturnsJson});
}

}  // namespace lm
