// What a model file holds and what running it takes, without loading it: its directory and keys are
// read, none of its weights.
#ifndef LM_ENGINE_MODEL_INSPECT_MODEL_H_
#define LM_ENGINE_MODEL_INSPECT_MODEL_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/language_model.h"
#include "engine/tensor/dtype.h"

namespace lm {

struct ModelReport {
  std::string name;          // general.name, or the file's name
  std::string architecture;  // empty: the file does not say
  int64_t file_bytes = 0;
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // as the file has them
  int64_t memory_bytes = 0;  // and as the CPU's memory has
  // Bytes of the tensors of each type, the most first.
  std::vector<std::pair<std::string, int64_t>> types;
  std::string tokenizer;  // tokenizer.ggml.model, and behind a slash .pre where there is one
  std::string chat_template;
  // Why it cannot run: all reasons that the keys give; empty where none does. (That a tensor is
  // missing or damaged is found when it is loaded.)
  std::string problem;
  std::string note;  // what of the file is left out, or is missing; empty: nothing

  // 0 where the family is not known.
  int64_t context_length = 0;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t vocabulary = 0;
  std::vector<CacheClass> classes;  // without their numbers of blocks
  int64_t state_bytes = 0;          // of a sequence

  // Of the classes without a window, for a token more.
  int64_t kv_bytes_per_token() const;
  // Weights and cache, for so many sequences of so many tokens that share nothing.
  int64_t MemoryFor(int64_t sequences, int64_t tokens) const;
};

// Keys and values as `kv_type`, or as models on such a device have them. Errors: GgufFile::Open's,
// but for tensors of a type that is not computed with: those are a problem.
absl::StatusOr<ModelReport> InspectModel(const std::string& path, std::optional<DType> kv_type,
                                         const std::string& device,
                                         const std::atomic<bool>& cancel);

// "chatml", "llama3", "gemma", ...: what people call a template that writes such marks, or has such
// a name; "jinja" for any other; empty for none.
std::string TemplateKind(const std::string& chat_template);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_INSPECT_MODEL_H_
