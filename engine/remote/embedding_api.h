// The APIs of embeddings and of ranking: what is sent, and how the answers are read.
#ifndef LM_ENGINE_REMOTE_EMBEDDING_API_H_
#define LM_ENGINE_REMOTE_EMBEDDING_API_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/remote_options.h"
#include "engine/remote/secrets.h"

namespace lm {

// The body of a request for /embeddings, of a text.
std::string EmbeddingBody(absl::string_view text, const RemoteModel& model,
                          const RemoteOptions& options);
// What a server says of a text, or of a pair: Generation::embedding.
struct EmbeddingAnswer {
  std::vector<float> numbers;
  int64_t tokens_in;  // as the server counts them; 0: it does not
};
// Unavailable for what is no answer to that, or has a number that is none.
absl::StatusOr<EmbeddingAnswer> ReadEmbedding(absl::string_view body, const Secrets& secrets = {});

// A query and a text, as RequestSpec::text has them.
std::string RankedPair(absl::string_view query, absl::string_view text);
// The body of a request for /rerank. Cancelled at a Checkpoint(). REQUIRES: `pair` is a RankedPair.
absl::StatusOr<std::string> RerankBody(absl::string_view pair, const RemoteModel& model,
                                       const RemoteOptions& options);
// The scores of the labels: one number; or, where the server has made it a probability, that of the
// other label too. Unavailable as ReadEmbedding.
absl::StatusOr<EmbeddingAnswer> ReadScore(absl::string_view body, Dialect dialect,
                                          const Secrets& secrets = {});

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_EMBEDDING_API_H_
