#include "engine/model/inspect_model.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/backend/registry.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/gguf_file.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/adapter_file.h"
#include "engine/model/cache_spec.h"
#include "engine/model/device_plan.h"
#include "engine/model/load_vocabulary.h"
#include "engine/model/model_spec.h"
#include "engine/model/other_keys.h"
#include "engine/model/weights.h"
#include "engine/text/chat/chat_template.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

constexpr std::pair<absl::string_view, absl::string_view> kTemplateMarks[] = {
    {"<|channel|>", "harmony"},
    {"<|im_start|>", "chatml"},
    {"<|start_header_id|>", "llama3"},
    {"<|turn>", "gemma4"},
    {"<start_of_turn>", "gemma"},
    {"<|START_OF_TURN_TOKEN|>", "command"},
    {"<|start_of_role|>", "granite"},
    {"[gMASK]", "glm"},
    {"<｜User｜>", "deepseek"},
    {"[INST]", "mistral"},
    {"<|user|>", "phi"},
    {"<seed:bos>", "seed"},
};
// What may stand in a template's place.
constexpr absl::string_view kTemplateNames[] = {"chatml", "rwkv-world"};

void AddProblem(const absl::Status& status, ModelReport* report) {
  if (status.ok()) return;
  absl::StrAppend(&report->problem, report->problem.empty() ? "" : "; ", status.message());
}

void AddNote(absl::string_view note, ModelReport* report) {
  absl::StrAppend(&report->note, report->note.empty() ? "" : "; ", note);
}

void ReadText(const Metadata& metadata, ModelReport* report) {
  absl::StatusOr<Vocabulary> vocabulary = LoadVocabulary(metadata);
  AddProblem(vocabulary.status(), report);
  if (!vocabulary.ok()) return;
  report->tokenizer = vocabulary->pre.empty()
                          ? vocabulary->model
                          : absl::StrCat(vocabulary->model, "/", vocabulary->pre);
  if (vocabulary->model == "gpt2" && vocabulary->pre.empty()) {
    AddNote(
        "it does not say how its texts are split (tokenizer.ggml.pre), as old conversions do "
        "not: tokens and so answers may be worse than the model's",
        report);
  }
  report->chat_template = vocabulary->chat_template;
  const absl::StatusOr<ChatTemplate> chat = ChatTemplate::Create(*vocabulary);
  AddProblem(chat.ok() ? chat->Render("a", "a", {}).status() : chat.status(), report);
  AddProblem(Tokenizer::Create(*std::move(vocabulary)).status(), report);
}

void ReadShape(const GgufFile& gguf, std::optional<DType> kv_type, const std::string& device,
               ModelReport* report) {
  const absl::StatusOr<ModelSpec> spec = DescribeModel(gguf);
  AddProblem(spec.status(), report);
  if (!spec.ok()) return;
  report->context_length = spec->context_length;
  report->layers = spec->num_layers();
  report->hidden = spec->hidden;
  report->vocabulary = spec->vocab;
  if (gguf.FindTensor(kEmbedding) == nullptr) {
    AddProblem(absl::InvalidArgumentError(absl::StrCat(
                   "tensor '", kEmbedding,
                   gguf.tensors().empty() ? "' is missing: the file has a vocabulary and no weights"
                                          : "' is missing")),
               report);
  }
  const absl::StatusOr<std::vector<DeviceLayers>> plan = PlanDevices(device, spec->num_layers());
  AddProblem(plan.status(), report);
  const absl::StatusOr<DType> type =
      plan.ok() ? KvTypeOn(*plan, kv_type) : kv_type.value_or(DType::kF16);
  AddProblem(type.status(), report);
  constexpr int64_t kEnough = int64_t{1} << 50;
  const bool on_gpu = plan.ok() && HasGpu(*plan);
  const absl::StatusOr<CacheSpec> cache =
      PlanCache(*spec, kEnough, KvTypeOf(*spec, on_gpu, type.value_or(DType::kF16)));
  AddProblem(cache.status(), report);
  if (!cache.ok()) return;
  report->classes = cache->shape.classes;
  for (CacheClass& c : report->classes) c.num_blocks = 0;
  report->state_bytes = cache->shape.state_bytes;
}

// Vectors become F32; of a tensor of experts each is a matrix.
int64_t MemoryOf(const TensorInfo& tensor) {
  constexpr int64_t kFloat = sizeof(float);
  if (tensor.dims.size() < 2) return tensor.cols * kFloat;
  const auto rows = static_cast<int64_t>(tensor.dims[1]);
  return tensor.rows / rows * CpuMatrixBytes(tensor.dtype, rows, tensor.cols);
}

}  // namespace

std::string TemplateKind(const std::string& chat_template) {
  if (chat_template.empty()) return "";
  for (absl::string_view name : kTemplateNames) {
    if (chat_template == name) return chat_template;
  }
  for (const auto& [mark, kind] : kTemplateMarks) {
    if (absl::StrContains(chat_template, mark)) return std::string(kind);
  }
  return "jinja";
}

int64_t ModelReport::kv_bytes_per_token() const {
  int64_t bytes = 0;
  for (const CacheClass& c : classes) bytes += c.window == 0 ? c.block_bytes : 0;
  return bytes / kKvBlockTokens;
}

int64_t ModelReport::MemoryFor(int64_t sequences, int64_t tokens) const {
  int64_t each = state_bytes;
  for (const CacheClass& c : classes) {
    // A window's last block, and the one that its first token is in, are both there.
    const int64_t seen = c.window == 0 ? tokens : std::min(tokens, c.window + kKvBlockTokens);
    each += BlocksFor(seen) * c.block_bytes;
  }
  return memory_bytes + sequences * each;
}

absl::StatusOr<ModelReport> InspectModel(const std::string& path, std::optional<DType> kv_type,
                                         const std::string& device,
                                         const std::atomic<bool>& cancel) {
  ModelReport report;
  report.name = std::filesystem::path(path).stem().string();
  const absl::StatusOr<std::unique_ptr<GgufFile>> opened = OpenModelFile(path, &cancel);
  if (absl::IsUnimplemented(opened.status())) {
    AddProblem(opened.status(), &report);
    return report;
  }
  RETURN_IF_ERROR(opened.status());
  const GgufFile& gguf = **opened;
  const Metadata& metadata = gguf.metadata();
  report.name = metadata.GetString("general.name").value_or(report.name);
  report.architecture = metadata.GetString("general.architecture").value_or("");
  report.file_bytes = static_cast<int64_t>(gguf.bytes());
  std::map<std::string, int64_t> types;
  int64_t skipped = 0, skipped_bytes = 0;
  for (const TensorInfo& tensor : gguf.tensors()) {
    const int64_t bytes = static_cast<int64_t>(tensor.bytes);
    types[std::string(Traits(tensor.dtype).name)] += bytes;
    if (IsTowerTensor(tensor.name)) {
      ++skipped;
      skipped_bytes += bytes;
      continue;
    }
    report.parameters += tensor.rows * tensor.cols;
    if (tensor.name == kPerLayerEmbedding) continue;
    report.weight_bytes += bytes;
    report.memory_bytes += MemoryOf(tensor);
  }
  if (skipped > 0) {
    AddNote(absl::StrCat("its parts for images and sound are not read: ", skipped, " tensors, ",
                         skipped_bytes, " bytes"),
            &report);
  }
  report.types.assign(types.begin(), types.end());
  std::stable_sort(report.types.begin(), report.types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  ReadShape(gguf, kv_type, device, &report);
  if (!IsAdapter(metadata)) ReadText(metadata, &report);  // which has none of its own
  return report;
}

}  // namespace lm
