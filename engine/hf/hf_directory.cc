#include "engine/hf/hf_directory.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"
#include "engine/gguf/no_model.h"
#include "engine/hf/hf_config.h"
#include "engine/hf/hf_tokenizer.h"
#include "engine/hf/packed_rows.h"
#include "engine/hf/row_file.h"
#include "engine/hf/row_source.h"
#include "engine/hf/safetensors.h"

namespace lm {
namespace {

// In front of all names of a text model, the longer ones first.
constexpr absl::string_view kPrefixes[] = {"model.language_model.",
                                           "language_model.model.",
                                           "language_model.",
                                           "model.",
                                           "bert.",
                                           "roberta."};
constexpr absl::string_view kLayers[] = {"layers.", "encoder.layer."};

// What reads images, and what only training or other uses need.
bool IsLeftOut(const HfModel& model, absl::string_view name) {
  for (absl::string_view part : {"vision_tower.", "multi_modal_projector.", "rotary_emb.inv_freq",
                                 "embeddings.position_ids"}) {
    if (absl::StrContains(name, part)) return true;
  }
  return absl::StartsWith(name, "cls.") ||
         (!model.ranks && absl::StrContains(name, "pooler.dense."));
}

// "model.layers.3.mlp.up_proj" -> "blk.3.ffn_up"; nothing where the family has no such tensor.
std::optional<std::string> GgufName(const HfModel& model, absl::string_view stem) {
  for (absl::string_view prefix : kPrefixes) {
    if (absl::ConsumePrefix(&stem, prefix)) break;
  }
  std::string block;
  for (absl::string_view layers : kLayers) {
    if (!absl::ConsumePrefix(&stem, layers)) continue;
    const size_t dot = stem.find('.');
    int layer = 0;
    if (dot == absl::string_view::npos || !absl::SimpleAtoi(stem.substr(0, dot), &layer)) {
      return std::nullopt;
    }
    block = absl::StrCat("blk.", layer, ".");
    stem.remove_prefix(dot + 1);
    break;
  }
  const absl::string_view name = GgufNameOf(model, stem);
  if (name.empty()) return std::nullopt;
  return absl::StrCat(block, name);
}

// Makes the GGUF's tensors of the directory's.
class TensorMapper {
 public:
  TensorMapper(const Safetensors& weights, const HfModel& model, std::optional<PackedScheme> scheme)
      : weights_(weights), model_(model), scheme_(std::move(scheme)) {}

  absl::StatusOr<std::vector<RowTensor>> Map() {
    for (const StoredTensor& tensor : weights_.tensors()) {
      if (IsLeftOut(model_, tensor.name)) continue;
      RETURN_IF_ERROR(Checkpoint());
      RETURN_IF_ERROR(MapOne(tensor));
    }
    for (const auto& [name, values] : model_.vectors) {
      tensors_.push_back({name, {values.size()}, MakeValueRows(values)});
    }
    return std::move(tensors_);
  }

 private:
  absl::Status MapOne(const StoredTensor& tensor) {
    const size_t dot = tensor.name.rfind('.');
    const std::string stem = tensor.name.substr(0, dot);
    std::string kind = dot == std::string::npos ? "" : tensor.name.substr(dot);
    if (absl::EndsWith(stem, "LayerNorm")) {  // as BERT's first releases call them
      if (kind == ".gamma") kind = ".weight";
      if (kind == ".beta") kind = ".bias";
    }
    const std::optional<std::string> name = GgufName(model_, stem);
    const bool packed = kind == ".qweight";
    const bool beside = kind == ".qzeros" || kind == ".scales" || kind == ".g_idx";
    if (!name || !(packed || beside || kind == ".weight" || kind == ".bias")) {
      return StoredTensorError(tensor, absl::StrCat("is not part of the supported '",
                                                    model_.family->model_type, "' family"));
    }
    if (model_.tied && *name == "output") return absl::OkStatus();
    RowOrder order;
    const bool turns = absl::EndsWith(*name, ".attn_q") || absl::EndsWith(*name, ".attn_k");
    if (model_.family->adjacent_pairs && turns) order.head_dim = model_.head_dim;
    if (packed || beside) return MapPacked(tensor, stem, *name, packed, order);
    RowForm form{.order = order};
    form.as_f32 = tensor.shape.size() == 1 || *name == "token_types" || *name == "position_embd";
    if (*name == "position_embd") form.skip = model_.skipped_positions;
    if (model_.family->norms_less_one && absl::EndsWith(*name, "norm")) form.add = 1;
    if (form.add != 0 && !form.as_f32) {
      return StoredTensorError(tensor,
                               absl::StrCat("wanted one dimension, got ", tensor.Description()));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<RowSource> rows, MakeStoredRows(tensor, form));
    std::vector<uint64_t> dims(tensor.shape.rbegin(), tensor.shape.rend());
    dims.back() -= form.skip;
    tensors_.push_back({absl::StrCat(*name, kind), std::move(dims), std::move(rows)});
    return absl::OkStatus();
  }

  absl::Status MapPacked(const StoredTensor& tensor, const std::string& stem,
                         const std::string& name, bool is_weight, const RowOrder& order) {
    if (!scheme_) {
      return StoredTensorError(tensor,
                               "is packed, but there is no quantization_config that says how");
    }
    if (!is_weight) {  // read with the weight
      if (weights_.Find(stem + ".qweight") != nullptr) return absl::OkStatus();
      return StoredTensorError(tensor, absl::StrCat("there is no ", Quoted(stem + ".qweight")));
    }
    ASSIGN_OR_RETURN(std::unique_ptr<RowSource> rows,
                     MakePackedRows(weights_, stem, *scheme_, order, words_));
    std::vector<uint64_t> dims = {static_cast<uint64_t>(rows->cols()),
                                  static_cast<uint64_t>(rows->rows())};
    tensors_.push_back({name + ".weight", std::move(dims), std::move(rows)});
    return absl::OkStatus();
  }

  const Safetensors& weights_;
  const HfModel& model_;
  const std::optional<PackedScheme> scheme_;
  const std::shared_ptr<PackedWords> words_ = MakePackedWords();
  std::vector<RowTensor> tensors_;
};

// From config.json, or as older GPTQ tools wrote it, from a file of its own.
absl::StatusOr<std::optional<PackedScheme>> FindScheme(const std::filesystem::path& folder,
                                                       const HfObject& config) {
  if (const Json* const given = config.Find("quantization_config")) {
    ASSIGN_OR_RETURN(PackedScheme scheme, ReadPackedScheme(*given));
    return scheme;
  }
  const absl::StatusOr<Json> file = ReadJsonFile((folder / "quantize_config.json").string());
  if (absl::IsNotFound(file.status())) return std::nullopt;
  RETURN_IF_ERROR(file.status());
  ASSIGN_OR_RETURN(PackedScheme scheme, ReadPackedScheme(*file));
  return scheme;
}

// That sentence-transformers do no more with what the model makes than we do: layers of their own
// have weights of their own.
absl::Status CheckModules(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "modules.json";
  const absl::StatusOr<Json> json = ReadJsonFile(path.string());
  if (absl::IsNotFound(json.status())) return absl::OkStatus();
  RETURN_IF_ERROR(json.status());
  for (size_t i = 0; json->is_array() && i < json->size(); ++i) {
    const HfObject module(json->array()[i], absl::StrCat("'", path.string(), "': ", i));
    ASSIGN_OR_RETURN(const std::string type, module.Text("type"));
    const std::string kind = type.substr(type.rfind('.') + 1);
    if (kind != "Transformer" && kind != "Pooling" && kind != "Normalize") {
      return module.Unsupported("type");
    }
  }
  return absl::OkStatus();
}

// What sentence-transformers say of pooling; false where they do not.
absl::StatusOr<bool> AddPooling(const std::filesystem::path& folder, Metadata* metadata) {
  const std::filesystem::path path = folder / "1_Pooling" / "config.json";
  const absl::StatusOr<Json> json = ReadJsonFile(path.string());
  if (absl::IsNotFound(json.status())) return false;
  RETURN_IF_ERROR(json.status());
  const HfObject config(*json, absl::StrCat("'", path.string(), "'"));
  ASSIGN_OR_RETURN(const std::string architecture, metadata->GetString("general.architecture"));
  for (const auto& [member, type] :
       {std::pair("pooling_mode_mean_tokens", 1), std::pair("pooling_mode_cls_token", 2),
        std::pair("pooling_mode_lasttoken", 3)}) {
    ASSIGN_OR_RETURN(const bool on, config.Bool(member, false));
    if (!on) continue;
    metadata->Insert(architecture + ".pooling_type", static_cast<uint64_t>(type));
    return true;
  }
  return config.Error("pooling_mode_mean_tokens", "a pooling by the mean, the first or the last");
}

// Which markers swallow the spaces behind them GGUF files say by this name (load_vocabulary.cc), of
// vocabularies that have Phi-3's tokens; llama.cpp loads no others by it.
std::string NameOf(const std::filesystem::path& folder, const HfModel& model,
                   const Metadata& metadata) {
  std::string name =
      folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
  const std::string lower = absl::AsciiStrToLower(name);
  const bool named = absl::StrContains(lower, "phi-3") || absl::StrContains(lower, "phi3");
  const bool phi3 = model.family->model_type == "phi3" &&
                    metadata.GetString("tokenizer.ggml.model").value_or("") == "llama";
  return phi3 && !named ? absl::StrCat("phi3 ", name) : name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenHfDirectory(const std::string& path) {
  const std::filesystem::path folder = path;
  const std::filesystem::path config_path = folder / "config.json";
  const absl::StatusOr<Json> found = ReadJsonFile(config_path.string());
  if (absl::IsNotFound(found.status())) return NoModelIn(path, found.status());
  RETURN_IF_ERROR(found.status());
  const Json& json = *found;
  const HfObject config(json, absl::StrCat("'", config_path.string(), "'"));
  Metadata metadata;
  ASSIGN_OR_RETURN(const HfModel model, ReadHfConfig(config, &metadata));
  RETURN_IF_ERROR(CheckModules(folder));
  ASSIGN_OR_RETURN(const bool embeds, AddPooling(folder, &metadata));
  RETURN_IF_ERROR(AddHfTokenizer(path, config, model.vocab, embeds, &metadata));
  metadata.Insert("general.name", NameOf(folder, model, metadata));
  ASSIGN_OR_RETURN(std::optional<PackedScheme> scheme, FindScheme(folder, config));
  ASSIGN_OR_RETURN(const Safetensors weights, Safetensors::Open(path));
  ASSIGN_OR_RETURN(std::vector<RowTensor> tensors,
                   TensorMapper(weights, model, std::move(scheme)).Map());
  RETURN_IF_ERROR(Checkpoint());
  return MakeRowFile(path, metadata, std::move(tensors));
}

absl::StatusOr<std::unique_ptr<GgufFile>> OpenModelFile(const std::string& path,
                                                        const std::atomic<bool>* cancel) {
  std::error_code error;
  if (!std::filesystem::is_directory(path, error)) return GgufFile::Open(path, cancel);
  const CheckpointScope scope([cancel] { return cancel != nullptr && cancel->load(); });
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenHfDirectory(path));
  std::vector<std::unique_ptr<RandomAccessFile>> files;
  files.push_back(std::move(file));
  return GgufFile::Open(std::move(files), cancel);
}

}  // namespace lm
