#include "extension/generation_json.h"

#include <nlohmann/json.hpp>

#include "extension/interrupt.h"

namespace lm {
namespace {

using nlohmann::ordered_json;

std::string Dump(const ordered_json& object) {
  return object.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace

std::string GenerationJson(const Generation& generation) {
  absl::Status status = GenerationStatus(generation);
  ordered_json object;
  object["value"] = status.ok() ? ordered_json(generation.text) : ordered_json(nullptr);
  object["error"] =
      status.ok() ? ordered_json(nullptr) : ordered_json(std::string(status.message()));
  object["finish"] =
      std::string(FinishReasonName(status.ok() ? generation.finish : FinishReason::kError));
  object["tokens_in"] = generation.tokens_in;
  object["tokens_cached"] = generation.tokens_cached;
  object["tokens_out"] = generation.tokens_out;
  return Dump(object);
}

}  // namespace lm
