#include "extension/batch/row_request.h"

#include "engine/base/status_macros.h"
#include "engine/runtime/vote.h"

namespace lm {

TextRequest RequestOf(const RowPrompt& row) {
  TextRequest request{.prompt = **row.prompt, .options = row.options->generation};
  if (row.embed.has_value()) {
    request.task = row.embed->ranks ? Task::kRank : Task::kEmbed;
    if (row.system->has_value()) request.system = **row.system;
    request.question = row.question;
    request.pooling = row.embed->pooling;
    return request;
  }
  request.system = row.options->SystemOf(*row.system);
  if (row.chooses) request.task = Task::kChoose;
  if (row.weighs) request.task = Task::kWeigh;
  request.question = row.question;
  request.begun = row.begun;
  request.asked = row.asked;
  return request;
}

absl::Status CheckRow(const RowPrompt& row) {
  RETURN_IF_ERROR(row.prompt.status());
  if (!row.prompt->has_value()) return absl::OkStatus();
  RETURN_IF_ERROR(row.system.status());
  const Generator& generator = row.options->generator();
  ASSIGN_OR_RETURN(const RequestSpec spec, generator.Prepare(RequestOf(row)));
  RETURN_IF_ERROR(CheckDrawn(spec));
  return generator.Validate(spec);
}

}  // namespace lm
