// config.json of a Hugging Face directory, as the keys of the GGUF that it stands for.
#ifndef LM_ENGINE_HF_HF_CONFIG_H_
#define LM_ENGINE_HF_HF_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/base/json.h"
#include "engine/gguf/metadata.h"

namespace lm {

// A JSON object of a file. Errors are InvalidArgument and name the file, the member, what was
// wanted and what is there. A member that is null is absent.
class HfObject {
 public:
  // REQUIRES: json outlives it.
  HfObject(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  const Json* Find(absl::string_view name) const;
  bool Has(absl::string_view name) const { return Find(name) != nullptr; }
  // Without `otherwise` an absent member is an error.
  absl::StatusOr<int64_t> Int(absl::string_view name, std::optional<int64_t> otherwise = {}) const;
  absl::StatusOr<double> Number(absl::string_view name, std::optional<double> otherwise = {}) const;
  absl::StatusOr<std::string> Text(absl::string_view name,
                                   std::optional<std::string> otherwise = {}) const;
  absl::StatusOr<bool> Bool(absl::string_view name, bool otherwise) const;
  absl::StatusOr<std::vector<float>> Floats(absl::string_view name, size_t count) const;

  absl::Status Error(absl::string_view name, absl::string_view wanted) const;
  absl::Status Unsupported(absl::string_view name) const;
  const std::string& where() const { return where_; }

 private:
  // What is there, for a message.
  std::string Found(absl::string_view name) const;

  const Json& json_;
  std::string where_;
};

// A tensor's name without ".weight" and without the layer's prefix.
struct HfName {
  absl::string_view stored;
  absl::string_view gguf;
};

// What is to be known of a family's tensors.
struct HfFamily {
  absl::string_view model_type;    // of config.json
  absl::string_view architecture;  // general.architecture
  absl::Span<const HfName> names;  // its own, before those of all decoders
  bool adjacent_pairs;             // rows of W_q and W_k are reordered, see RowOrder
  bool norms_less_one;             // norms are stored as what is added to 1
};

// What a config.json says.
struct HfModel {
  const HfFamily* family = nullptr;
  int64_t layers = 0;
  int64_t head_dim = 0;
  int64_t vocab = 0;
  bool tied = false;  // the head is the embedding, whatever is stored
  // Vectors that GGUF has as tensors: "rope_freqs.weight", ...
  std::vector<std::pair<std::string, std::vector<float>>> vectors;
  int64_t skipped_positions = 0;  // leading rows of the positions' embedding that no text has
  bool ranks = false;             // it has a head that says how well two texts go together
};

// Empty where the model has no such tensor.
absl::string_view GgufNameOf(const HfModel& model, absl::string_view stored);

// Adds the keys of general.architecture to *metadata. Unimplemented, naming it, for a model_type
// or a setting that is not known.
absl::StatusOr<HfModel> ReadHfConfig(const HfObject& config, Metadata* metadata);

}  // namespace lm

#endif  // LM_ENGINE_HF_HF_CONFIG_H_
