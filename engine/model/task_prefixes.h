// What embedding models want to read before a text, by what the text is for: part of how they were
// trained, and in no file.
#ifndef LM_ENGINE_MODEL_TASK_PREFIXES_H_
#define LM_ENGINE_MODEL_TASK_PREFIXES_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/model.h"

namespace lm {

// "query", "document", "classification", "clustering" or "similarity": the prefix, maybe an empty
// one, of the model that has this name. InvalidArgument where the task is none of these, or the
// model or what it does for this task is not known.
absl::StatusOr<absl::string_view> TaskPrefix(const ModelInfo& info, absl::string_view task);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_TASK_PREFIXES_H_
