// What is asked of a chat server, whichever way it goes there: over the network, or in a file.
#ifndef LM_ENGINE_REMOTE_CHAT_REQUEST_H_
#define LM_ENGINE_REMOTE_CHAT_REQUEST_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/remote/remote_options.h"
#include "engine/runtime/generator.h"

namespace lm {

// The messages of a request as a JSON array. InvalidArgument for messages that are none.
absl::StatusOr<std::string> ChatMessages(const TextRequest& request);

// Unimplemented where the options choose adapters: those are the server's.
absl::Status CheckNoAdapters(const GenerationOptions& options);
// ... and how much it reasons.
absl::Status CheckNoThinkingTokens(const GenerationOptions& options);

// Generator::Prepare of a model that is spoken to in messages; RequestSpec::text is ChatMessages,
// the text to embed or a RankedPair. Unimplemented for on_overflow.
absl::StatusOr<RequestSpec> PrepareChat(const TextRequest& request);

// A number for the system prompt that a JSON array of messages begins with, the same in every
// process; 0 where it begins with none.
uint64_t SystemPrefix(absl::string_view messages);

// Generator::identity of the model that the servers at `path` call `name`.
std::string RemoteIdentity(absl::string_view path, absl::string_view name,
                           const RemoteOptions& options);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CHAT_REQUEST_H_
