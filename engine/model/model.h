// Model: a loaded GGUF, ready to run: tokenizer, chat template, transformer on a backend.
//
//   ASSIGN_OR_RETURN(std::unique_ptr<Model> model, Model::Load("model.gguf", {}));
#ifndef LM_ENGINE_MODEL_MODEL_H_
#define LM_ENGINE_MODEL_MODEL_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/gguf/content_digest.h"
#include "engine/model/language_model.h"
#include "engine/model/model_options.h"
#include "engine/model/pooling.h"
#include "engine/model/purpose.h"
#include "engine/text/chat/chat_template.h"
#include "engine/text/tokenizer.h"

namespace lm {

// What a token costs.
struct ModelCost {
  int64_t body_parameters = 0;  // multiplied for every token
  int64_t body_bytes = 0;       // that one pass over them reads
  int64_t head_parameters = 0;  // for every token whose logits are wanted
  int64_t head_bytes = 0;
  int64_t state_bytes = 0;  // that a step reads for each sequence
  bool integers = true;     // quantised weights, multiplied as int8; else in F32

  // In attention, of layers with one window.
  struct Attention {
    int64_t window = 0;      // positions that a token sees; 0: all
    int64_t operations = 0;  // for each of them
    int64_t bytes = 0;       // of keys and values, that each of them is
  };
  std::vector<Attention> attention = {};
  double attention_speed = 1;  // beside that of F32: of integers it is faster
};

// An adapter of a model: what rows name it by, and how much of it those have that name none.
struct AdapterInfo {
  std::string name = {};
  std::string digest = {};  // of its file's contents
  int64_t bytes = 0;        // of its tensors
  float scale = 1;
};

// What lm_models shows.
struct ModelInfo {
  std::string path;
  std::string name;          // general.name, or the file's name
  std::string architecture;  // "llama", "qwen2"
  std::string identity;      // tells its contents from all others in this process
  std::string quantisation;  // the type most of the weights have, e.g. "Q8_0"
  std::string device;
  std::string device_reason = {};  // why "auto" is the CPU although there is a GPU
  int64_t parameters = 0;
  int64_t weight_bytes = 0;  // with its adapters'
  int64_t kv_bytes = 0;      // reserved for the KV cache
  DType kv_type = DType::kF16;
  int32_t context_length = 0;
  std::optional<NamedMarks> thinking_marks = {};  // ModelOptions'
  std::string chat_template = {};  // the digest of ModelOptions'; empty: the file's is used
  bool short_rope = false;  // LongRoPE with the factors of short contexts, by context_length
  int32_t vocab_size = 0;
  int32_t hidden_size = 0;  // numbers of an embedding
  // Whether it writes texts. Others are made to embed them, as encoders, or to rank them.
  bool generates = true;
  std::optional<Pooling> pooling = {};  // as the file says
  bool ranks = false;
  Purpose purpose = {};
  ModelCost cost = {};
  std::string pack_cache = {};     // PackCache::state(); empty: no cache was asked for
  std::string prefix_store = {};   // the folder; empty: none was asked for
  int64_t prefix_store_bytes = -1;  // 0: nothing is kept there; below 0: its default
  // Another machine computes the same bits: NumericContract::kExactBlocks, everywhere.
  bool exact = false;
  std::vector<AdapterInfo> adapters = {};  // AdapterUse has their numbers
  // Of a million tokens of prompts, and of answers, where somebody else's machine is paid for.
  std::optional<double> price_in = {}, price_out = {};
};

// InvalidArgument, naming the model and what it is made for, where it does not write texts; where
// it does not rank them.
absl::Status CheckGenerates(const ModelInfo& info);
absl::Status CheckRanks(const ModelInfo& info);

class Model;

// InvalidArgument, saying why, where `draft` cannot guess for `model`: it writes no texts, has
// another vocabulary (which token differs; one may have more padding than the other), or recurrent
// states, which take no guess back.
absl::Status CheckDraft(const Model& model, const Model& draft);

// Immutable except for the language model's KV cache.
class Model {
 public:
  // Cancelled, soon, once `cancel` is set.
  static absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path,
                                                     const ModelOptions& options,
                                                     const std::atomic<bool>& cancel);
  static absl::StatusOr<std::unique_ptr<Model>> Load(const std::string& path,
                                                     const ModelOptions& options);
  // Assembles a model from parts; for tests with a scripted language model. Without `digest` its
  // identity is that.
  Model(ModelInfo info, std::unique_ptr<Tokenizer> tokenizer, ChatTemplate chat_template,
        std::unique_ptr<LanguageModel> language_model,
        std::unique_ptr<const ContentDigest> digest = nullptr);

  const ModelInfo& info() const { return info_; }
  // Of its files. Known from the beginning where info().prefix_store is set.
  const ContentDigest& digest() const { return *digest_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const ChatTemplate& chat_template() const { return chat_template_; }
  const std::shared_ptr<const ThinkingMarks>& thinking_marks() const { return thinking_marks_; }
  LanguageModel& language_model() { return *language_model_; }
  const LanguageModel& language_model() const { return *language_model_; }
  // The one that guesses what this one says (ModelOptions::draft); null: none.
  Model* draft() { return draft_.get(); }
  // REQUIRES: CheckDraft.
  void set_draft(std::unique_ptr<Model> draft) { draft_ = std::move(draft); }

 private:
  ModelInfo info_;
  std::unique_ptr<const ContentDigest> digest_;
  std::unique_ptr<Tokenizer> tokenizer_;
  ChatTemplate chat_template_;
  std::shared_ptr<const ThinkingMarks> thinking_marks_;
  std::unique_ptr<LanguageModel> language_model_;
  std::unique_ptr<Model> draft_;
};

}  // namespace lm

#endif  // LM_ENGINE_MODEL_MODEL_H_
