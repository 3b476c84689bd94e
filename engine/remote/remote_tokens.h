// The tokens of a model that is elsewhere, as far as they are known here: by a tokenizer of ours,
// or because its server tells how many there are.
#ifndef LM_ENGINE_REMOTE_REMOTE_TOKENS_H_
#define LM_ENGINE_REMOTE_REMOTE_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/model_text.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/network.h"
#include "engine/remote/remote_options.h"
#include "engine/runtime/request.h"

namespace lm {

// Of `text`, a RequestSpec::text of that request: what the model is fed for it.
absl::StatusOr<std::vector<int32_t>> EncodeText(const ModelText& model, const RequestSpec& spec,
                                                absl::string_view text);

// How many tokens a plain text has, as one of the servers says; nullopt where the dialect has no
// such question. Waits; Cancelled, soon, where the thread's scope (checkpoint.h) is interrupted.
absl::StatusOr<std::optional<int64_t>> AskForTokens(Network* network,
                                                    const std::vector<std::string>& urls,
                                                    const RemoteModel& model,
                                                    const RemoteOptions& options,
                                                    absl::string_view text);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REMOTE_TOKENS_H_
