// How a model on the network is spoken to: `path` and `options` of its row of lm_models.
#ifndef LM_ENGINE_REMOTE_REMOTE_OPTIONS_H_
#define LM_ENGINE_REMOTE_REMOTE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json.h"
#include "engine/text/chat/thinking_marks.h"

namespace lm {

// What a server adds to the API of OpenAI, and how it takes a constraint.
enum class Dialect { kAuto, kOpenAi, kVllm, kSglang, kLlamaServer, kTrtllm, kOllama };
absl::string_view DialectName(Dialect dialect);
// InvalidArgument, with those that there are, for another name.
absl::StatusOr<Dialect> ParseDialect(absl::string_view name);

struct RemoteOptions {
  std::string model = {};  // the server's name for it; empty: the first that it lists
  Dialect dialect = Dialect::kAuto;
  std::string key_env = {};  // the environment variable with the key; empty: no key
  std::vector<std::pair<std::string, std::string>> headers = {};
  Json extra = Json::MakeObject();       // members of every request; null takes one of ours away
  int64_t concurrency = 16;              // requests under way at most, of each server
  int64_t rpm = 0;                       // requests a minute; 0: any number
  int64_t tpm = 0;                       // tokens a minute, of prompts and answers; 0: any number
  std::optional<double> price_in = {};   // of a million tokens of prompts, in any currency
  std::optional<double> price_out = {};  // likewise of answers
  std::string tokenizer = {};  // a GGUF file or a directory with the model's; empty: there is none
  std::string affinity_header = {};  // tells gateways the system prompt, by a number; empty: none
  int64_t timeout_ms = 600'000;      // of one request
  int64_t retries = 4;               // of a request that failed; 429 and 503 do not count
  int64_t context_length = 0;        // tokens; 0: as the server says
  std::optional<NamedMarks> thinking_marks = {};  // none: any of the usual
  bool check = false;                             // who registers it asks it at once
  bool ranks = false;  // pooling "rank": its model gives scores, and writes no text
};

// Whether a model's path is an address, or a JSON array of such.
bool IsRemotePath(absl::string_view path);

// PermissionDenied where LM_NETWORK=off or LM_HOSTS, a list of hosts with commas between, does not
// let this process speak to the host of an address; InvalidArgument for what is no such.
absl::Status CheckMaySpeakTo(absl::string_view url);

// The addresses, without a slash at their ends. InvalidArgument for what is no http or https URL,
// or has a user or password in it; CheckMaySpeakTo's errors.
absl::StatusOr<std::vector<std::string>> ParseRemotePath(absl::string_view path);

// Whether all addresses are of OpenAI's own servers, or of Azure's.
bool AreOpenAis(const std::vector<std::string>& urls);

// From a JSON object; empty: all defaults. InvalidArgument, naming it, for an unknown key, a wrong
// type or a value out of range.
absl::StatusOr<RemoteOptions> ParseRemoteOptions(absl::string_view json);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_REMOTE_OPTIONS_H_
