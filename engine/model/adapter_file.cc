#include "engine/model/adapter_file.h"

#include <cmath>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/base/file.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr absl::string_view kAlpha = "adapter.lora.alpha";
// Of adapters that are to begin in the middle of a prompt, behind these tokens.
constexpr absl::string_view kInvocation = "adapter.alora.invocation_tokens";

// A path that stands beside a model's.
std::string PathBeside(const std::string& model_path, const std::string& path) {
  const std::filesystem::path model(model_path);
  std::error_code error;  // one that cannot be looked at is reported by who opens it
  const bool is_folder = std::filesystem::is_directory(model, error);
  return ((is_folder ? model : model.parent_path()) / path).string();
}

absl::StatusOr<AdapterFile> Open(const std::string& path, const std::string& name,
                                 absl::string_view architecture, const std::atomic<bool>* cancel) {
  AdapterFile file{.name = name, .gguf = nullptr};
  ASSIGN_OR_RETURN(file.gguf, GgufFile::Open(path, cancel));
  const Metadata& metadata = file.gguf->metadata();
  auto check = [&](absl::string_view key, absl::string_view wanted) {
    const std::string got = metadata.GetString(key).value_or("");
    if (got == wanted) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(path, ": '", key, "' must be '", wanted,
                                                   "', got '", Printable(got.substr(0, 64)), "'"));
  };
  RETURN_IF_ERROR(check("general.type", "adapter"));
  RETURN_IF_ERROR(check("adapter.type", "lora"));
  RETURN_IF_ERROR(check("general.architecture", architecture));
  if (file.gguf->tensors().empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": it has no tensors"));
  }
  if (metadata.Has(kInvocation)) {
    return absl::UnimplementedError(absl::StrCat(path, ": '", kInvocation, "' is not supported"));
  }
  if (metadata.Has(kAlpha)) {
    ASSIGN_OR_RETURN(const double alpha, metadata.GetFloat(kAlpha));
    file.alpha = static_cast<float>(alpha);
  }
  return file;
}

}  // namespace

bool IsAdapter(const Metadata& metadata) {
  return metadata.GetString("general.type").value_or("") == "adapter";
}

absl::Status OfAdapter(absl::string_view name, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      absl::StrCat("adapter '", Printable(name), "': ", status.message()));
}

absl::StatusOr<std::vector<AdapterFile>> OpenAdapters(const std::string& model_path,
                                                      absl::string_view architecture,
                                                      const std::vector<AdapterOption>& options,
                                                      const std::atomic<bool>* cancel) {
  std::vector<AdapterFile> files;
  for (const AdapterOption& option : options) {
    absl::StatusOr<AdapterFile> file =
        Open(PathBeside(model_path, option.path), option.name, architecture, cancel);
    RETURN_IF_ERROR(OfAdapter(option.name, file.status()));
    files.push_back(*std::move(file));
  }
  return files;
}

absl::StatusOr<ModelIdentity> IdentifyFiles(const std::string& model_path,
                                            const ModelOptions& options) {
  ASSIGN_OR_RETURN(ModelIdentity identity, IdentifyModel(model_path));
  for (const AdapterOption& option : options.lora) {
    const absl::StatusOr<ModelIdentity> own = IdentifyModel(PathBeside(model_path, option.path));
    RETURN_IF_ERROR(OfAdapter(option.name, own.status()));
    identity.insert(identity.end(), own->begin(), own->end());
  }
  if (!options.draft.empty()) {
    ASSIGN_OR_RETURN(const ModelIdentity own, IdentifyModel(DraftPath(model_path, options)));
    identity.insert(identity.end(), own.begin(), own.end());
  }
  const std::string chat_template = ChatTemplatePath(model_path, options);
  if (!chat_template.empty()) {
    ASSIGN_OR_RETURN(const FileIdentity own, IdentifyFile(chat_template));
    identity.push_back({chat_template, own});
  }
  return identity;
}

std::string DraftPath(const std::string& model_path, const ModelOptions& options) {
  return PathBeside(model_path, options.draft);
}

std::string ChatTemplatePath(const std::string& model_path, const ModelOptions& options) {
  const std::string& given = options.chat_template;
  const bool is_text = absl::StrContains(given, "{{") || absl::StrContains(given, "{%");
  return is_text || given.empty() ? "" : PathBeside(model_path, given);
}

absl::StatusOr<std::string> ReadChatTemplate(const std::string& model_path,
                                             const ModelOptions& options) {
  const std::string path = ChatTemplatePath(model_path, options);
  if (path.empty()) return options.chat_template;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = OpenFile(path);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        absl::StrCat("options: chat_template is neither Jinja ({{ or {%) nor a "
                                     "file's path: ",
                                     file.status().message()));
  }
  constexpr uint64_t kMostBytes = 1 << 20;  // as of templates in models
  if ((*file)->Size() > kMostBytes) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": a chat template has at most ",
                                                   kMostBytes, " bytes, not ", (*file)->Size()));
  }
  std::string text((*file)->Size(), '\0');
  RETURN_IF_ERROR((*file)->Read(0, absl::MakeSpan(text.data(), text.size())));
  return text;
}

}  // namespace lm
