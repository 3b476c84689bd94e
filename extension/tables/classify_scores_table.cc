// lm_classify_scores(text, labels [, instruction [, options]]): how probable each label is
//   -> label, probability
//
//   SELECT label, probability FROM lm_classify_scores('Where is it?', '["praise","question"]');
//   SELECT id, label                                                -- where the model is in doubt
//     FROM letters, lm_classify_scores(body, '["bug","wish","praise"]')
//    WHERE probability BETWEEN 0.2 AND 0.8;
//
// The arguments are lm_classify's, and so is the prompt. The probabilities are those of the model's
// logits, among the labels: they sum to 1 (extension/questions/label_scores.h). Rows come in the
// order of `labels`. In a join rows are asked about together, as look-ahead sees them coming.
// lm_classify with {"scores":true} gives the same numbers as a JSON object:
//   SELECT id, key, value
//     FROM letters, json_each(lm_classify(body, :labels, NULL, '{"scores":true}'));
//
// A NULL text gives no rows. Nor does one that fails, where on_error is not 'error'.
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/connection/own_options.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/label_scores.h"
#include "extension/questions/labels.h"
#include "extension/tables/rows_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class ScoresCursor : public RowsCursor {
 public:
  ScoresCursor(Connection& connection, const TableFunctionSpec& spec)
      : RowsCursor(connection, spec), ahead_(connection, spec.name, &spec) {}

  absl::Status Fill(const TableArguments& args, Rows* rows) override {
    RowPrompt row{.prompt = args.Text(0)};
    ASSIGN_OR_RETURN(const std::string json, NeededText(args, 1, "labels"));
    ASSIGN_OR_RETURN(const std::vector<Label> labels, ParseLabels(json));
    ASSIGN_OR_RETURN(const std::optional<std::string> instruction, args.Text(2));
    if (instruction.has_value()) RETURN_IF_ERROR(CheckNotOptions(*instruction, "instruction"));
    ASSIGN_OR_RETURN(const std::optional<std::string> given, args.Text(3));
    if (row.prompt.ok() && !row.prompt->has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(CallOptions options, ReadCallOptions(given, connection()));
    const OnError on_error = options.generation.on_error;
    row.system = ClassifyPrompt(instruction, labels);
    row.asked = ClassifyWords(instruction, labels);
    row.options = std::make_shared<const CallOptions>(std::move(options));
    absl::Status failure;
    ASSIGN_OR_RETURN(const std::optional<std::vector<double>> scores,
                     ScoreLabels(row, NamesOf(labels), [&](RowPrompt asked) {
                       return Answer(std::move(asked), &failure);
                     }));
    if (!scores.has_value()) return on_error == OnError::kError ? failure : absl::OkStatus();
    for (size_t i = 0; i < labels.size(); ++i) rows->push_back({labels[i].name, (*scores)[i]});
    return absl::OkStatus();
  }

 private:
  // nullopt, and why, for a row that fails; and for one of a shadow that is not to know it. An
  // error is an interrupt.
  absl::StatusOr<std::optional<Generation>> Answer(RowPrompt row, absl::Status* failure) {
    ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, ahead_.Await(std::move(row)));
    if (!pending.has_value()) return std::nullopt;
    const Generation& generation = pending->answer().generation;
    *failure = generation.status;
    return failure->ok() ? std::optional(generation) : std::nullopt;
  }

  CursorAhead ahead_;
};

constexpr TableFunctionSpec kClassifyScoresSpec = {
    .name = "lm_classify_scores",
    .columns = "label TEXT, probability REAL",
    .num_columns = 2,
    .arguments = {"text", "labels", "instruction", "options"},
    .required = 2,
    .missing = "a text or its labels are missing: lm_classify_scores(text, labels)",
    .open = &MakeCursor<ScoresCursor>};

}  // namespace

int RegisterClassifyScores(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kClassifyScoresSpec);
}

}  // namespace lm
