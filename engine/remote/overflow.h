// on_overflow where the tokens are a server's: it refuses a prompt that is too long, and is sent a
// shorter one.
#ifndef LM_ENGINE_REMOTE_OVERFLOW_H_
#define LM_ENGINE_REMOTE_OVERFLOW_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "engine/runtime/request.h"

namespace lm {

// How much of the prompt fits, as the server's words about it tell: some name the context and what
// the request has, in tokens. Where they do not, a share that is worth another try. `answer_tokens`
// are to have room behind it, up to half of the context.
double ShareThatFits(absl::string_view words, int64_t answer_tokens);
// The same of known numbers.
double ShareThatFits(int64_t context, int64_t tokens, int64_t answer_tokens);

// `text`, a RequestSpec::text of that request, perhaps cut before, with about `share` of what may
// be cut: its last message or what is to be embedded, but for spec.kept_end; what is to be ranked.
// Shorter by a character at least; nullopt where it is not to be cut, or nothing is left to cut.
std::optional<std::string> CutText(const RequestSpec& spec, absl::string_view text, double share);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_OVERFLOW_H_
