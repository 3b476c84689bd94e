// The APIs of embeddings and of ranking: what is sent, and how the answers are read.
#ifndef LM_ENGINE_REMOTE_EMBEDDING_API_H_
#define LM_ENGINE_REMOTE_EMBEDDING_API_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/remote_options.h"

namespace lm {

// The body of a request for /embeddings, of a text.
std::string EmbeddingBody(absl::string_view text, const RemoteModel& model,
                          const RemoteOptions& options);
// Unavailable for what is no answer to that.
absl::StatusOr<std::vector<float>> ReadEmbedding(absl::string_view body);

// A query and a text, as RequestSpec::text has them.
std::string RankedPair(absl::string_view query, absl::string_view text);
// The body of a request for /rerank. REQUIRES: `pair` is a RankedPair.
std::string RerankBody(absl::string_view pair, const RemoteModel& model,
                       const RemoteOptions& options);
// The scores of the labels as Generation::embedding has them: one number; or, where the server has
// made it a probability, that of the other label too. Unavailable for what is no such answer.
absl::StatusOr<std::vector<float>> ReadScore(absl::string_view body, Dialect dialect);

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_EMBEDDING_API_H_
