#include "engine/gguf/ollama_names.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"

namespace lm {
namespace {

// Of a key, without the architecture; of a tensor, without "blk.N.": the whole name, or where
// `from` ends in a dot what the name begins with.
struct Renamed {
  absl::string_view from, to;
};

// The file, while it is being renamed.
class Header {
 public:
  Header(Metadata* metadata, std::vector<TensorInfo>* tensors)
      : metadata_(*metadata), tensors_(*tensors) {}

  std::string architecture() const {
    return metadata_.GetString("general.architecture").value_or("");
  }
  // A key of the architecture, by its name.
  std::string Key(absl::string_view name) const { return absl::StrCat(architecture(), ".", name); }

  bool Has(absl::string_view name) const { return metadata_.Has(Key(name)); }
  int64_t Int(absl::string_view name) const { return metadata_.GetInt(Key(name)).value_or(0); }
  void Set(absl::string_view name, MetadataValue value) {
    metadata_.Set(Key(name), std::move(value));
  }
  void SetDefault(absl::string_view name, MetadataValue value) {
    metadata_.Insert(Key(name), std::move(value));
  }
  Metadata& metadata() { return metadata_; }

  const TensorInfo* Find(absl::string_view name) const {
    for (const TensorInfo& tensor : tensors_) {
      if (tensor.name == name) return &tensor;
    }
    return nullptr;
  }
  // The first block's that has it.
  const TensorInfo* FindInBlocks(absl::string_view part) const {
    for (const TensorInfo& tensor : tensors_) {
      if (PartOf(tensor.name) == part) return &tensor;
    }
    return nullptr;
  }
  bool AnyBeginsWith(absl::string_view prefix) const {
    return std::any_of(tensors_.begin(), tensors_.end(), [prefix](const TensorInfo& tensor) {
      return absl::StartsWith(tensor.name, prefix);
    });
  }

  void RenameArchitecture(absl::string_view to) {
    const std::string old_prefix = Key("");
    metadata_.Set("general.architecture", std::string(to));
    std::vector<std::string> keys;
    for (const auto& [key, value] : metadata_.values()) {
      if (absl::StartsWith(key, old_prefix)) keys.push_back(key);
    }
    for (const std::string& key : keys) metadata_.Rename(key, Key(key.substr(old_prefix.size())));
  }
  void RenameKey(const Renamed& renamed) { metadata_.Rename(Key(renamed.from), Key(renamed.to)); }
  void Erase(absl::string_view name) { metadata_.Erase(Key(name)); }
  // A key that says again what others do, or how things are for us in any case.
  void EraseIf(absl::string_view name, const MetadataValue& value) {
    const auto found = metadata_.values().find(Key(name));
    if (found != metadata_.values().end() && found->second == value) Erase(name);
  }
  // The first `rows` of a matrix.
  void CutRows(absl::string_view name, int64_t rows) {
    for (TensorInfo& tensor : tensors_) {
      if (tensor.name != name || tensor.dims.size() != 2 || tensor.rows <= rows) continue;
      tensor.bytes = tensor.bytes / tensor.rows * rows;
      tensor.stored_bytes = StoredBytes(tensor.form, tensor.bytes);
      tensor.dims[1] = tensor.rows = rows;
    }
  }
  void RenameTensors(const Renamed& renamed) {
    for (TensorInfo& tensor : tensors_) {
      absl::string_view part = PartOf(tensor.name);
      const size_t at = tensor.name.size() - part.size();
      const bool whole = !absl::EndsWith(renamed.from, ".");
      if (whole ? part != renamed.from : !absl::StartsWith(part, renamed.from)) continue;
      tensor.name.replace(at, renamed.from.size(), renamed.to.data(), renamed.to.size());
    }
  }
  void DropTensors(absl::string_view prefix) {
    tensors_.erase(std::remove_if(tensors_.begin(), tensors_.end(),
                                  [prefix](const TensorInfo& tensor) {
                                    return absl::StartsWith(tensor.name, prefix);
                                  }),
                   tensors_.end());
  }

 private:
  static absl::string_view PartOf(absl::string_view name) {
    if (!absl::ConsumePrefix(&name, "blk.")) return name;
    const size_t dot = name.find('.');
    return dot == absl::string_view::npos ? name : name.substr(dot + 1);
  }

  Metadata& metadata_;
  std::vector<TensorInfo>& tensors_;
};

constexpr char kPre[] = "tokenizer.ggml.pre";
constexpr char kTextModel[] = "tokenizer.ggml.model";

// Some converters write no splitter, or one that says nothing.
void SetDefaultPre(Header& header, const char* pre) {
  const std::string stated = header.metadata().GetString(kPre).value_or("");
  if (stated.empty() || stated == "default") header.metadata().Set(kPre, std::string(pre));
}

// Sections of a head's pairs are written without the fourth, and may be there twice.
void PadSections(Header& header) {
  constexpr char kAgain[] = "rope.mrope_section";
  const std::string key = header.Key("rope.dimension_sections");
  absl::StatusOr<std::vector<int64_t>> sections = header.metadata().GetInts(key);
  if (!sections.ok()) return;
  if (sections->size() == 3) sections->push_back(0);
  absl::StatusOr<std::vector<int64_t>> again = header.metadata().GetInts(header.Key(kAgain));
  if (again.ok() && again->size() == 3) again->push_back(0);
  if (again.ok() && *again == *sections) header.Erase(kAgain);
  header.metadata().Set(key, *std::move(sections));
}

bool HasNoSections(const Header& header) { return !header.Has("rope.dimension_sections"); }

// All of these models have the same.
void AddSections(Header& header) {
  header.Set("rope.dimension_sections", std::vector<int64_t>{24, 20, 20, 0});
}

void MendGptOss(Header& header) {
  header.SetDefault("rope.scaling.type", std::string("yarn"));
  header.metadata().Set(kPre, std::string("gpt-4o"));
  header.SetDefault("ffn_gate_up_exps.alternate", true);
}

// The heads are those of attention that is not latent.
void MendGlm4MoeLite(Header& header) {
  const int64_t rank = header.Int("attention.kv_lora_rank");
  const int64_t rope = header.Int("rope.dimension_count");
  const int64_t head_dim = header.Int("attention.key_length");
  if (rank > 0 && rope > 0 && head_dim > 0) {
    header.Set("attention.head_count_kv", int64_t{1});
    header.Set("attention.key_length", static_cast<uint64_t>(rank) + static_cast<uint64_t>(rope));
    header.Set("attention.value_length", rank);
    header.Set("attention.key_length_mla", head_dim);
    header.Set("attention.value_length_mla", head_dim);
  }
  header.metadata().Set(kPre, std::string("glm4"));
}

// The vocabulary has tokens of images, behind those that the model has embeddings of.
void CutVocabulary(Header& header) {
  const TensorInfo* embedding = header.Find("token_embd.weight");
  if (embedding == nullptr) return;
  const auto rows = static_cast<size_t>(embedding->rows);
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.scores"}) {
    header.metadata().CutArray(key, rows);
  }
}

bool IsOllamasGemma3(const Header& header) {
  return header.Has("mm.tokens_per_image") || header.Has("rope.global.freq_base") ||
         header.Has("rope.local.freq_base") || header.AnyBeginsWith("v.") ||
         !header.Has("attention.layer_norm_rms_epsilon");
}

// Which came first, and leave out what is so in all of them.
void MendGemma3(Header& header) {
  header.SetDefault("attention.layer_norm_rms_epsilon", double{1e-6f});
  header.SetDefault("rope.freq_base", 1e6);
  header.SetDefault("rope.freq_base_swa", 1e4);
  if (header.Int("context_length") >= 131072 && !header.Has("rope.scaling.factor")) {
    header.Set("rope.scaling.type", std::string("linear"));
    header.Set("rope.scaling.factor", 8.0);
  }
  CutVocabulary(header);
}

// Has tokens of images and sounds that have no embeddings for the layers; or Ollama's keys.
bool IsOllamasGemma3n(const Header& header) {
  const TensorInfo* embedding = header.Find("token_embd.weight");
  const TensorInfo* of_layers = header.Find("per_layer_token_embd.weight");
  return header.Has("head_dim") || header.Has("rope.freq_base_local") ||
         (embedding != nullptr && of_layers != nullptr && embedding->rows > of_layers->rows);
}

// Tokens that stand for bytes are not said to, and those without a use are said to be special.
void MendTokenTypes(Metadata& metadata) {
  constexpr int64_t kNormal = 1, kByte = 6;
  constexpr char kTypes[] = "tokenizer.ggml.token_type";
  const auto tokens = metadata.GetStrings("tokenizer.ggml.tokens");
  absl::StatusOr<std::vector<int64_t>> types = metadata.GetInts(kTypes);
  if (!tokens.ok() || !types.ok() || types->size() != tokens->size()) return;
  for (size_t i = 0; i < tokens->size(); ++i) {
    const std::string& token = (*tokens)[i];
    if (token.size() == 6 && absl::StartsWith(token, "<0x") && token.back() == '>') {
      (*types)[i] = kByte;
    } else if (absl::StartsWith(token, "<unused")) {
      (*types)[i] = kNormal;
    }
  }
  metadata.Set(kTypes, *std::move(types));
}

void MendGemma3n(Header& header) {
  if (const TensorInfo* of_layers = header.Find("per_layer_token_embd.weight")) {
    header.CutRows("token_embd.weight", of_layers->rows);
  }
  CutVocabulary(header);
  MendTokenTypes(header.metadata());
  header.metadata().Set(kTextModel, std::string("llama"));
  header.EraseIf("altup.correct_scale", true);
  header.Erase("altup.lr_multiplier");  // of training
}

bool IsEmbeddingGemma(const Header& header) { return header.Find("dense.0.weight") != nullptr; }

void MendEmbeddingGemma(Header& header) {
  header.metadata().Erase(header.Key("attention.causal"));
  header.metadata().Erase(header.Key("attention.sliding_window_pattern"));
  header.SetDefault("rope.freq_base_swa", 1e4);
  if (const TensorInfo* dense = header.Find("dense_2.weight")) {
    header.Set("dense_2_feat_in", dense->cols);
    header.Set("dense_2_feat_out", dense->rows);
  }
  if (const TensorInfo* dense = header.Find("dense_3.weight")) {
    header.Set("dense_3_feat_in", dense->cols);
    header.Set("dense_3_feat_out", dense->rows);
  }
}

void MendGemma4(Header& header) {
  Metadata& metadata = header.metadata();
  if (metadata.GetString(kTextModel).value_or("") == "llama" &&
      metadata.Has("tokenizer.ggml.merges")) {
    metadata.Set(kTextModel, std::string("gemma4"));
  }
  header.DropTensors("model.vision_tower.");
}

bool HasOutputNorm(const Header& header) { return header.Find("output_norm.weight") != nullptr; }

// Some say a feed-forward's width that their tensors have not.
void MendLfm2(Header& header) {
  header.metadata().Set(kPre, std::string("lfm2"));
  if (const TensorInfo* gate = header.FindInBlocks("ffn_gate.weight")) {
    header.Set("feed_forward_length", gate->rows);
  }
}

void MendMistral3(Header& header) { SetDefaultPre(header, "tekken"); }

bool HasBareSteps(const Header& header) { return header.FindInBlocks("ssm_dt") != nullptr; }

// The layers without attention say that they have no KV heads; blocks that predict further tokens
// have names of their own.
void MendQwen35(Header& header) {
  const std::string key = header.Key("attention.head_count_kv");
  const absl::StatusOr<std::vector<int64_t>> heads = header.metadata().GetInts(key);
  if (heads.ok() && !heads->empty()) {
    header.metadata().Set(key, *std::max_element(heads->begin(), heads->end()));
  }
  PadSections(header);
  header.EraseIf("ssm.v_head_reordered", true);
  header.EraseIf("rope.mrope_interleaved", true);
  header.DropTensors("mtp.");
}

bool HasLatentIn(const Header& header) {
  return header.FindInBlocks("ffn_latent_in.weight") != nullptr || header.AnyBeginsWith("mtp.");
}

void MendNemotronH(Header& header) {
  if (const TensorInfo* latent = header.FindInBlocks("ffn_latent_down.weight")) {
    header.SetDefault("moe_latent_size", latent->rows);
  }
  header.DropTensors("mtp.");
}

void MendLlama(Header& header) {
  constexpr size_t kEnd = 128009;
  const auto tokens = header.metadata().GetStrings("tokenizer.ggml.tokens");
  if (tokens.ok() && tokens->size() > kEnd && (*tokens)[kEnd] == "<|eot_id|>") {
    SetDefaultPre(header, "llama-bpe");
  }
}

// What others of its keys or its tensors say, too.
void MendLaguna(Header& header) {
  header.EraseIf("attention.qk_norm", true);
  header.EraseIf("attention.sink_enabled", false);
  header.EraseIf("decoder_sparse_step", uint64_t{1});
  header.EraseIf("rope.swa.scaling.factor", 1.0);
  header.Erase("attention.gating_type");
  for (const auto& [name, better] :
       {Renamed{"attention.layer_types", "attention.sliding_window_pattern"},
        {"dense_layers", "leading_dense_block_count"},
        {"rope.partial_rotary_factor", "rope.dimension_count"},
        {"rope.swa.partial_rotary_factor", "rope.dimension_count_swa"}}) {
    if (header.Has(better)) header.Erase(name);
  }
  if (!header.Has("rope.swa.scaling.factor")) header.Erase("rope.swa.scaling.type");
}

bool HasExperts(const Header& header) { return header.Int("expert_count") > 0; }

// What some have in base 64, a character a string.
void MendBert(Header& header) {
  constexpr char kMap[] = "tokenizer.ggml.precompiled_charsmap";
  const auto characters = header.metadata().GetStrings(kMap);
  if (!characters.ok()) return;
  std::string text, bytes;
  for (const std::string& character : *characters) text += character;
  if (!absl::Base64Unescape(text, &bytes)) return;
  std::vector<uint64_t> map;
  for (const char byte : bytes) map.push_back(static_cast<uint8_t>(byte));
  header.metadata().Set(kMap, std::move(map));
}

void Leave(Header&) {}
bool Always(const Header&) { return true; }

struct Dialect {
  absl::string_view architecture;  // that the file says
  bool (*is_it)(const Header& header);
  absl::string_view means;  // the architecture
  absl::Span<const Renamed> keys, tensors;
  void (*mend)(Header& header);  // once all is renamed
};

constexpr Renamed kGptOssTensors[] = {{"attn_out.", "attn_output."},
                                      {"attn_sinks", "attn_sinks.weight"},
                                      {"ffn_norm.", "post_attention_norm."}};
constexpr Renamed kSectionKeys[] = {{"rope.mrope_section", "rope.dimension_sections"}};
constexpr Renamed kGemma3Keys[] = {{"rope.global.freq_base", "rope.freq_base"},
                                   {"rope.local.freq_base", "rope.freq_base_swa"}};
constexpr Renamed kGemma3nKeys[] = {{"head_dim", "attention.key_length"},
                                    {"rope.freq_base_local", "rope.freq_base_swa"}};
constexpr Renamed kEmbeddingTensors[] = {{"dense.0.weight", "dense_2.weight"},
                                         {"dense.1.weight", "dense_3.weight"},
                                         {"norm.weight", "output_norm.weight"}};
constexpr Renamed kGemma4Tensors[] = {{"ffn_gate_inp.per_expert_scale", "ffn_down_exps.scale"}};
constexpr Renamed kLfm2Tensors[] = {{"output_norm.weight", "token_embd_norm.weight"}};
constexpr Renamed kMistral3Keys[] = {
    {"rope.scaling.mscale_all_dim", "rope.scaling.yarn_log_multiplier"},
    {"rope.scaling_beta", "attention.temperature_scale"}};
constexpr Renamed kStepTensors[] = {{"ssm_dt", "ssm_dt.bias"}};
constexpr Renamed kLagunaKeys[] = {{"rope.swa.dimension_count", "rope.dimension_count_swa"},
                                   {"rope.swa.freq_base", "rope.freq_base_swa"}};
constexpr Renamed kLagunaTensors[] = {{"attn_g.", "attn_gate."}};
constexpr Renamed kLatentTensors[] = {{"ffn_latent_in.", "ffn_latent_down."},
                                      {"ffn_latent_out.", "ffn_latent_up."}};

// Of all of them.
constexpr Renamed kKeys[] = {{"attention.head_dim", "attention.key_length"},
                             {"norm_top_k_prob", "expert_weights_norm"},
                             {"rope.scaling.beta_fast", "rope.scaling.yarn_beta_fast"},
                             {"rope.scaling.beta_slow", "rope.scaling.yarn_beta_slow"}};

// The first that is it.
constexpr Dialect kDialects[] = {
    {"bert", &Always, "bert", {}, {}, &MendBert},
    {"gemma3", &IsEmbeddingGemma, "gemma-embedding", kGemma3Keys, kEmbeddingTensors,
     &MendEmbeddingGemma},
    {"gemma3", &IsOllamasGemma3, "gemma3", kGemma3Keys, {}, &MendGemma3},
    {"gemma3n", &IsOllamasGemma3n, "gemma3n", kGemma3nKeys, {}, &MendGemma3n},
    {"gemma4", &Always, "gemma4", {}, kGemma4Tensors, &MendGemma4},
    {"glm4moelite", &Always, "deepseek2", {}, {}, &MendGlm4MoeLite},
    {"gptoss", &Always, "gpt-oss", {}, kGptOssTensors, &MendGptOss},
    {"laguna", &Always, "laguna", kLagunaKeys, kLagunaTensors, &MendLaguna},
    {"lfm2", &HasOutputNorm, "lfm2", {}, kLfm2Tensors, &MendLfm2},
    {"llama", &Always, "llama", {}, {}, &MendLlama},
    {"mistral3", &Always, "mistral3", kMistral3Keys, {}, &MendMistral3},
    {"nemotron_h_moe", &HasLatentIn, "nemotron_h_moe", {}, kLatentTensors, &MendNemotronH},
    {"nemotron_h_omni", &HasExperts, "nemotron_h_moe", {}, kLatentTensors, &MendNemotronH},
    {"nemotron_h_omni", &Always, "nemotron_h", {}, {}, &Leave},
    {"olmo3", &Always, "olmo2", {}, {}, &Leave},
    {"qwen25vl", &Always, "qwen2vl", kSectionKeys, {}, &PadSections},
    {"qwen35", &HasBareSteps, "qwen35", {}, kStepTensors, &MendQwen35},
    {"qwen35moe", &HasBareSteps, "qwen35moe", {}, kStepTensors, &MendQwen35},
    {"qwen3next", &HasBareSteps, "qwen3next", {}, kStepTensors, &MendQwen35},
    {"qwen3vl", &HasNoSections, "qwen3vl", {}, {}, &AddSections},
    {"qwen3vlmoe", &HasNoSections, "qwen3vlmoe", {}, {}, &AddSections},
};

}  // namespace

void UseLlamaCppNames(Metadata* metadata, std::vector<TensorInfo>* tensors) {
  Header header(metadata, tensors);
  const std::string architecture = header.architecture();
  for (const Renamed& renamed : kKeys) {
    header.RenameKey(renamed);
    const auto named = metadata->values().find(header.Key(renamed.to));
    if (named != metadata->values().end()) header.EraseIf(renamed.from, named->second);
  }
  for (const Dialect& dialect : kDialects) {
    if (dialect.architecture != architecture || !dialect.is_it(header)) continue;
    if (dialect.means != architecture) header.RenameArchitecture(dialect.means);
    for (const Renamed& renamed : dialect.keys) header.RenameKey(renamed);
    for (const Renamed& renamed : dialect.tensors) header.RenameTensors(renamed);
    return dialect.mend(header);
  }
}

}  // namespace lm
