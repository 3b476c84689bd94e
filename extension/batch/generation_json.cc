#include "extension/batch/generation_json.h"

#include "engine/base/json.h"
#include "extension/connection/await.h"

namespace lm {

std::string GenerationJson(const Generation& generation) {
  absl::Status status = GenerationStatus(generation);
  Json object = Json::MakeObject();
  object.Add("value", status.ok() ? Json(generation.text) : Json());
  object.Add("error", status.ok() ? Json() : Json(status.message()));
  object.Add("finish", FinishReasonName(status.ok() ? generation.finish : FinishReason::kError));
  object.Add("tokens_in", generation.tokens_in);
  object.Add("tokens_cached", generation.tokens_cached);
  object.Add("tokens_out", generation.tokens_out);
  return object.Dump();
}

}  // namespace lm
