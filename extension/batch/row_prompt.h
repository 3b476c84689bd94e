// RowPrompt: what one row asks the model.
//
//   RowPrompt row{.prompt = "Name a colour.", .system = "", .options = options};
//   queue.Push(std::move(row));
//
// Its way to an answer is PendingAnswer's; the request to the engine is made in row_request.h.
#ifndef LM_EXTENSION_BATCH_ROW_PROMPT_H_
#define LM_EXTENSION_BATCH_ROW_PROMPT_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "extension/batch/read_in_parts.h"
#include "extension/connection/call_options.h"

namespace lm {

class Call;

// What is made of a prompt's hidden states.
struct EmbedTask {
  std::optional<Pooling> pooling = {};  // as TextRequest has it
  bool ranks = false;                   // how well the prompt answers RowPrompt::question

  friend bool operator==(const EmbedTask& a, const EmbedTask& b) {
    return a.pooling == b.pooling && a.ranks == b.ranks;
  }
};

// Which model to ask instead where an answer is not probable enough.
struct Escalation {
  std::shared_ptr<const CallOptions> options;  // the row's, of the other model
  double below = 0;
  double (*confidence)(const Generation& answer) = nullptr;  // how probable the answer is
};

struct RowPrompt {
  // nullopt: the answer is NULL. An error is the row's failure.
  absl::StatusOr<std::optional<std::string>> prompt = std::nullopt;
  absl::StatusOr<std::optional<std::string>> system = std::nullopt;
  std::shared_ptr<const CallOptions> options = {};  // may be null where the prompt is NULL
  std::string question = "";                        // stands behind the prompt
  bool chooses = false;                             // the answer has its first_choices
  std::string begun = "";                           // what the answer begins with
  std::optional<std::string> asked = {};            // as TextRequest has it
  // Instead of an answer: the prompt's embedding. The system prompt is then words that are read
  // right before the prompt; without one, the model's own words are.
  std::optional<EmbedTask> embed = {};
  // The answer has its probability (Task::kWeigh); not an answer of the model that it is escalated
  // to.
  bool weighs = false;
  std::shared_ptr<const Escalation> escalation = {};  // null: the first model's answer stands
  std::shared_ptr<MemoScan> scan = {};  // the row's; null: that of the statement that submits it
  // Null: one prompt, whatever its length. Only of a row that generates, with a system prompt.
  std::shared_ptr<const ReadInParts> parts = {};
};

// Whether the model is to be asked.
bool HasPrompt(const RowPrompt& row);

// A sort key: rows in the order of their keys have those with a common beginning side by side.
// REQUIRES: the row has not been submitted.
std::string PlaceOf(const RowPrompt& row);

// Reads the arguments that every function of a row has: (prompt [, system [, options]]). What is
// wrong with the prompt or the system prompt is the row's failure; an error is the statement's. A
// NULL prompt needs no options, nor a model. `on_error` goes before the option of that name.
absl::StatusOr<RowPrompt> ReadRow(const Call& call, std::optional<OnError> on_error = {});

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_ROW_PROMPT_H_
