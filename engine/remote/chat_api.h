// The chat API of OpenAI and its dialects: what is sent, and how the answers are read.
#ifndef LM_ENGINE_REMOTE_CHAT_API_H_
#define LM_ENGINE_REMOTE_CHAT_API_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "engine/remote/remote_options.h"
#include "engine/remote/secrets.h"
#include "engine/remote/split_character.h"
#include "engine/runtime/request.h"
#include "engine/runtime/trouble.h"

namespace lm {

// A server's model, as its list of models tells.
struct RemoteModel {
  std::string name;
  Dialect dialect = Dialect::kOpenAi;
  int64_t context_length = 0;  // 0: it does not say
  bool is_openais = false;     // OpenAI's own, by its address
};

// Members of a body that some servers refuse, and answers can do without.
struct LeftOut {
  bool seed = false;
  bool stream_options = false;  // then its tokens are estimated

  bool operator==(const LeftOut&) const = default;
};
// With those that a server's words, beside that code of HTTP, say it does not take.
LeftOut WithRefused(LeftOut left_out, int code, absl::string_view words);

// Of the answer to GET /models. NotFound, with those that there are, where `wanted` is none of them
// (empty: the first), with "models/" before it or ":latest" behind it neither; Unavailable where it
// is no such list.
absl::StatusOr<RemoteModel> ReadModelList(absl::string_view body, absl::string_view wanted,
                                          const Secrets& secrets = {});

// Whether an answer comes as a stream of events, or at once.
enum class Delivery { kStream, kWhole };

// The body of a request for /chat/completions. InvalidArgument, naming it, for an option that the
// dialect has no word for.
absl::StatusOr<std::string> ChatBody(const RequestSpec& spec, const RemoteModel& model,
                                     const RemoteOptions& options,
                                     Delivery delivery = Delivery::kStream,
                                     const LeftOut& left_out = {});

// What an answer says, piece by piece.
struct ChatAnswer {
  std::string text;
  std::string reasoning;
  std::string refusal;             // what the model says instead of an answer
  std::string finish;              // as the server calls it; empty: not yet
  std::string odd;                 // the first choice without a message, until one has come
  std::string stray;               // the last event that says nothing of an answer
  bool has_message = false;        // be it an empty one
  std::vector<FirstChoice> first;  // of the first token, with its alternatives
  std::optional<int64_t> tokens_in, tokens_cached, tokens_out;
  int64_t pieces = 0;  // that had text, or reasoning

  // Adds one event of the stream, or the whole answer. Unavailable for what is none.
  absl::Status Append(absl::string_view event, const Secrets& secrets = {});
  absl::Status AppendJson(const Json& event, const Secrets& secrets = {});

  std::optional<int64_t> index;  // of the choice that is read; none: it has no number so far
  SplitCharacter split;          // by the events so far
};

// A number of tokens, as a server gives it; nullopt where that is none.
std::optional<int64_t> ReadCount(const Json* json);
// As much of what a server says as an error shows of it.
std::string ShownWords(absl::string_view words, const Secrets& secrets);
// The server's own words in the body of an error, likewise.
std::string ErrorText(absl::string_view body, const Secrets& secrets);
// Whether the body of a refusal (429) says that money is wanted, and no patience.
bool SaysUnpaid(absl::string_view body);
// What such a body and its code say of who answers; kNone where it may be the request, or time.
Trouble RejectionTrouble(int code, absl::string_view body);
// Whether they say, beside that code of HTTP, that the prompt is longer than the context.
bool SaysTooLong(int code, absl::string_view error);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CHAT_API_H_
