// lm_summarize(text [, options])              TEXT: what a text of any length says, in short
// lm_summarize_agg(text [, options])          aggregate: the same over all rows of a group
// lm_agg(text, instruction [, options])       aggregate: an instruction over all rows of a group
// lm_cluster_label(text [, options])          aggregate: what the texts of a group have in common
//
//   SELECT id, lm_summarize(body) FROM reports;          -- longer than the context or not
//   SELECT lm_summarize(readfile('book.txt'), '{"max_tokens":400}');
//   SELECT product, lm_agg(body, 'What do buyers complain about most?')
//     FROM reviews GROUP BY product;
//   SELECT lm_summarize_agg(line) FROM (SELECT line FROM log ORDER BY time);
//
// Nothing is left out and nothing is cut off: every token of every row is read. What fits the
// context is one prompt, with the instruction as its system prompt: lm_summarize(text) is then
// generate(text, 'Summarise the text.'); lm_cluster_label asks for a name of what they share. A
// longer text is cut into parts at paragraphs and sentences. The instruction is carried out over
// each part, many at a time, and the answers are combined, in order, in as many rounds as it takes.
//
// lm_summarize() looks ahead (batch/look_ahead.h): the texts of many rows, and their parts, decode
// together. Rows of an aggregate are one text, a blank line apart, in the order in which SQLite
// visits them (ORDER BY in a subquery says which); parts are under way while further rows are read.
//
// options are those of generate(), and
//   instruction   (lm_summarize, lm_summarize_agg, lm_cluster_label) what to do, instead of our
//                 wording; with `choices`, a label is one of those
//   combine       what to do with the answers about parts, instead of our wording
//   part_tokens   the most tokens of the text in a part, where that is to be less than what fits
// max_tokens is the last answer's; room for it is kept, up to half of the context. An answer about
// a part has at most a quarter of a part's tokens. on_overflow has no say: nothing overflows.
//
// NULLs are passed over; without any other row the result is NULL. The instruction and the options
// must be the same in all rows of a group. A row that is no text, or a part that fails, fails the
// group: on_error says what that gives, as for generate(). One group is finished before the next
// begins. Not to be used as window functions.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/await_row.h"
#include "extension/batch/map_reduce.h"
#include "extension/batch/row_answer.h"
#include "extension/binding/aggregate_function.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/own_options.h"
#include "extension/functions/functions.h"

namespace lm {
namespace {

constexpr char kNameCluster[] = "Name in a few words what all of these texts are about.";

// `instruction` is nullopt where the options may have it, and `otherwise` is it where they do not.
absl::StatusOr<MapReduceTask> ReadTask(Call& call, std::optional<std::string> instruction,
                                       const char* otherwise,
                                       const std::optional<std::string>& json) {
  auto own = instruction.has_value()
                 ? OwnOptions::TakeOfCall(json, {"combine", "part_tokens"})
                 : OwnOptions::TakeOfCall(json, {"instruction", "combine", "part_tokens"});
  RETURN_IF_ERROR(own.status());
  MapReduceTask task;
  if (!instruction.has_value()) {
    ASSIGN_OR_RETURN(instruction, own->Text("instruction"));
  }
  task.instruction = instruction.value_or(otherwise);
  ASSIGN_OR_RETURN(task.parts, ReadPartsOptions(*own));
  ASSIGN_OR_RETURN(task.options, call.Options(own->rest()));
  RETURN_IF_ERROR(CheckOneAnswer(task.options.generation));
  task.options.generation.on_overflow = OnOverflow::kError;
  return task;
}

// The answer to a text whose work has begun, or what on_error makes of its failure.
absl::Status Conclude(Call& call, MapReduce& work, absl::Status failure, OnError on_error) {
  RowAnswer answer;
  answer.generation.status = std::move(failure);
  if (answer.generation.status.ok()) {
    ASSIGN_OR_RETURN(answer.generation, work.Finish(call.connection().db()));
  }
  return ResultAnswer(call.context(), answer, on_error);
}

absl::Status Summarize(Call& call) {
  RowPrompt row{.prompt = call.Text(0, "text")};
  if (row.prompt.ok() && !row.prompt->has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::optional<std::string> json, call.Text(1, "options"));
  ASSIGN_OR_RETURN(MapReduceTask task, ReadTask(call, std::nullopt, kSummarise, json));
  row.system = std::move(task.instruction);
  row.parts = std::make_shared<const ReadInParts>(std::move(task.parts));
  row.options = std::make_shared<const CallOptions>(std::move(task.options));
  return AnswerRow(call, std::move(row));
}

// Argument 0 is the text; then the instruction, where there is one, and the options.
class DocumentAggregate : public Aggregate {
 public:
  // `otherwise`: the instruction where it is no argument, and the options name none.
  explicit DocumentAggregate(const char* otherwise)
      : has_instruction_(otherwise == nullptr), otherwise_(otherwise) {}

  absl::Status Step(Call& row) override {
    ++rows_;
    absl::StatusOr<std::optional<std::string>> text = row.Text(0, "text");
    if (text.ok() && !text->has_value()) return absl::OkStatus();
    RETURN_IF_ERROR(ReadArguments(row));
    if (text.ok())
      return failure_.ok() ? work_->Add(row.connection().db(), **text) : absl::OkStatus();
    absl::Status failure(text.status().code(),
                         absl::StrCat("row ", rows_, ": ", text.status().message()));
    if (on_error_ == OnError::kError) return failure;
    failure_.Update(failure);
    return absl::OkStatus();
  }

  absl::Status Final(Call& call) override {
    if (work_ == nullptr) return absl::OkStatus();  // NULL
    return Conclude(call, *work_, failure_, on_error_);
  }

 private:
  absl::Status ReadArguments(Call& row) {
    std::optional<std::string> instruction;
    if (has_instruction_) {
      ASSIGN_OR_RETURN(instruction, row.Text(1, "instruction"));
      if (!instruction.has_value()) return absl::InvalidArgumentError("instruction is NULL");
      if (work_ == nullptr) RETURN_IF_ERROR(CheckNotOptions(*instruction, "instruction"));
    }
    ASSIGN_OR_RETURN(std::optional<std::string> options,
                     row.Text(has_instruction_ ? 2 : 1, "options"));
    if (work_ == nullptr) {
      ASSIGN_OR_RETURN(MapReduceTask task, ReadTask(row, instruction, otherwise_, options));
      on_error_ = task.options.generation.on_error;
      ASSIGN_OR_RETURN(work_, MapReduce::Create(std::move(task)));
      instruction_ = std::move(instruction);
      options_ = std::move(options);
    } else if (instruction != instruction_ || options != options_) {
      return absl::InvalidArgumentError(
          absl::StrCat("row ", rows_, ": ", instruction != instruction_ ? "instruction" : "options",
                       " must be the same in all rows of a group"));
    }
    return absl::OkStatus();
  }

  const bool has_instruction_;
  const char* const otherwise_;
  int64_t rows_ = 0;
  std::optional<std::string> instruction_;
  std::optional<std::string> options_;
  OnError on_error_ = OnError::kError;
  absl::Status failure_;             // of a row
  std::unique_ptr<MapReduce> work_;  // null: no row yet but NULLs
};

struct SummarizeAggregate : DocumentAggregate {
  SummarizeAggregate() : DocumentAggregate(kSummarise) {}
};
struct ClusterLabel : DocumentAggregate {
  ClusterLabel() : DocumentAggregate(kNameCluster) {}
};
struct InstructionAggregate : DocumentAggregate {
  InstructionAggregate() : DocumentAggregate(nullptr) {}
};

}  // namespace

int RegisterDocuments(const std::shared_ptr<Connection>& connection) {
  constexpr int kFlags = kDirectOnly | kReturnsJson;
  int code = RegisterScalar<&Summarize>(connection, {"lm_summarize", 1, 2, kFlags});
  if (code != SQLITE_OK) return code;
  code = RegisterAggregate<SummarizeAggregate>(connection, {"lm_summarize_agg", 1, 2, kFlags});
  if (code != SQLITE_OK) return code;
  code = RegisterAggregate<ClusterLabel>(connection, {"lm_cluster_label", 1, 2, kFlags});
  if (code != SQLITE_OK) return code;
  return RegisterAggregate<InstructionAggregate>(connection, {"lm_agg", 2, 3, kFlags});
}

}  // namespace lm
