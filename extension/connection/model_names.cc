#include "extension/connection/model_names.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/adapter_file.h"
#include "engine/model/device_plan.h"
#include "engine/remote/hub_reference.h"
#include "extension/connection/absolute_path.h"
#include "extension/connection/own_options.h"

namespace lm {
namespace {

constexpr char kDefaultName[] = "default";
constexpr char kShippedModel[] = "debian-notes.gguf";

// The folder of the library (or the program) that this code is part of.
std::filesystem::path OwnFolder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&OwnFolder), &info) == 0 || info.dli_fname == nullptr) {
    return ".";
  }
  std::error_code error;
  std::filesystem::path own = std::filesystem::canonical(info.dli_fname, error);
  // A program found through PATH gives only its name here.
  if (error || !absl::StrContains(info.dli_fname, '/')) {
    own = std::filesystem::read_symlink("/proc/self/exe", error);
  }
  return own.parent_path();
}

// On a server or the hub.
bool IsElsewhere(absl::string_view reference) {
  return IsRemotePath(reference) || IsHubReference(reference);
}

bool LooksLikePath(absl::string_view reference) {
  return !IsElsewhere(reference) &&
         (absl::StrContains(reference, '/') || absl::EndsWithIgnoreCase(reference, ".gguf"));
}

// The options of a model of this machine: how it is loaded, and what its tokens are to cost.
absl::Status ReadLocalOptions(const std::string& json, ModelOptions* options, Prices* prices) {
  if (json.empty()) return absl::OkStatus();
  constexpr absl::string_view kPrices[] = {"price_in", "price_out"};
  ASSIGN_OR_RETURN(const OwnOptions own, OwnOptions::Take(json, {kPrices[0], kPrices[1]}));
  ASSIGN_OR_RETURN(prices->in, own.Amount("price_in"));
  ASSIGN_OR_RETURN(prices->out, own.Amount("price_out"));
  RETURN_IF_ERROR(ParseModelOptions(own.rest().value_or(""), options, kPrices));
  options->draft = PathFromHome(options->draft);
  options->chat_template = PathFromHome(options->chat_template);
  for (AdapterOption& adapter : options->lora) adapter.path = PathFromHome(adapter.path);
  options->pack_cache = PathFromStart(options->pack_cache);
  options->prefix_store = PathFromStart(options->prefix_store);
  return absl::OkStatus();
}

absl::Status CheckFile(NamedModel* model) {
  ModelOptions checked;
  Prices prices;
  RETURN_IF_ERROR(ReadLocalOptions(model->options, &checked, &prices));
  RETURN_IF_ERROR(CheckDevices(checked.device));
  ASSIGN_OR_RETURN(model->path, AbsolutePath("path", model->path));
  ASSIGN_OR_RETURN(const std::unique_ptr<GgufFile> gguf, OpenModelFile(model->path));
  if (!checked.draft.empty()) {
    RETURN_IF_ERROR(OpenModelFile(DraftPath(model->path, checked)).status());
  }
  if (checked.lora.empty()) return absl::OkStatus();
  const std::string architecture = gguf->metadata().GetString("general.architecture").value_or("");
  return OpenAdapters(model->path, architecture, checked.lora).status();
}

absl::Status CheckRemote(const NamedModel& model) {
  RETURN_IF_ERROR(ParseRemotePath(model.path).status());
  ASSIGN_OR_RETURN(const RemoteOptions options, ParseRemoteOptions(model.options));
  if (options.tokenizer.empty()) return absl::OkStatus();
  const absl::Status status = OpenModelFile(options.tokenizer).status();
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat("tokenizer: ", status.message()));
}

}  // namespace

absl::StatusOr<std::string> FindDefaultModel() {
  const char* variable = std::getenv("LM_MODEL");
  if (variable != nullptr && *variable != '\0') {
    return IsElsewhere(variable) ? variable : PathFromStart(variable);
  }
  static const auto& folder = *new std::filesystem::path(OwnFolder());  // never destroyed
  for (const std::filesystem::path& candidate :
       {folder / kShippedModel, folder / "models" / kShippedModel}) {
    std::error_code error;
    if (std::filesystem::is_regular_file(candidate, error)) return candidate.string();
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "there is no model to run; name one by INSERT INTO temp.lm_models(name, path) VALUES "
      "('default', '/path/to/model.gguf'), or by the environment variable LM_MODEL, or put ",
      kShippedModel, " into ", folder.string()));
}

absl::Status ModelNames::Put(NamedModel model) {
  if (model.name.empty()) return absl::InvalidArgumentError("name must not be empty");
  if (model.path.empty()) return absl::InvalidArgumentError("path must not be empty");
  const NamedModel* namesake = Find(model.name);
  if (namesake != nullptr && namesake->rowid != model.rowid) {
    return absl::AlreadyExistsError(absl::StrCat("there is a model named '", model.name,
                                                 "' already, at ", namesake->path,
                                                 " (INSERT OR REPLACE takes its place)"));
  }
  RETURN_IF_ERROR(IsRemotePath(model.path) ? CheckRemote(model) : CheckFile(&model));
  auto at = std::lower_bound(models_.begin(), models_.end(), model.rowid,
                             [](const NamedModel& m, int64_t rowid) { return m.rowid < rowid; });
  if (at != models_.end() && at->rowid == model.rowid) {
    *at = std::move(model);
  } else {
    models_.insert(at, std::move(model));
  }
  return absl::OkStatus();
}

void ModelNames::Remove(int64_t rowid) {
  std::erase_if(models_, [rowid](const NamedModel& model) { return model.rowid == rowid; });
}

const NamedModel* ModelNames::Find(absl::string_view name) const {
  auto found = std::find_if(models_.begin(), models_.end(),
                            [name](const NamedModel& model) { return model.name == name; });
  return found != models_.end() ? &*found : nullptr;
}

const NamedModel* ModelNames::Find(int64_t rowid) const {
  auto found = std::find_if(models_.begin(), models_.end(),
                            [rowid](const NamedModel& model) { return model.rowid == rowid; });
  return found != models_.end() ? &*found : nullptr;
}

bool ModelNames::IsPath(absl::string_view reference) const {
  return Find(reference) == nullptr && LooksLikePath(reference);
}

absl::Status ModelNames::CheckNotAddress(absl::string_view reference) const {
  if (Find(reference) != nullptr || !IsElsewhere(reference)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", reference,
                   "': an address needs a name: INSERT INTO temp.lm_models(name, path) VALUES ('",
                   kDefaultName, "', '", reference, "')"));
}

int64_t ModelNames::NextRowid() const { return models_.empty() ? 1 : models_.back().rowid + 1; }

absl::StatusOr<ModelSource> ModelNames::Resolve(absl::string_view reference,
                                                const Settings& settings) const {
  std::string name(reference);
  if (name.empty()) name = settings.model.value_or(kDefaultName);
  ModelSource source = {.name = name, .path = "", .options = settings.LoadingOptions()};
  if (const NamedModel* model = Find(name)) {
    source.path = model->path;
    if (source.is_remote()) {
      source.remote_options = model->options;
    } else {
      RETURN_IF_ERROR(ReadLocalOptions(model->options, &source.options, &source.prices));
    }
    return source;
  }
  if (name == kDefaultName) {
    ASSIGN_OR_RETURN(source.path, FindDefaultModel());
    if (IsHubReference(source.path)) {
      return absl::InvalidArgumentError(
          absl::StrCat("LM_MODEL is '", source.path,
                       "': a model of the hub is fetched by INSERT INTO "
                       "temp.lm_models(name, path) VALUES ('",
                       kDefaultName, "', '", source.path, "')"));
    }
    return source;
  }
  RETURN_IF_ERROR(CheckNotAddress(name));
  if (IsPath(name)) {
    ASSIGN_OR_RETURN(source.path, AbsolutePath("model", name));
    return source;
  }
  std::string known = absl::StrJoin(models_, ", ", [](std::string* out, const NamedModel& model) {
    absl::StrAppend(out, "'", model.name, "'");
  });
  return absl::NotFoundError(absl::StrCat("there is no model named '", name, "' (lm_models has ",
                                          known.empty() ? "none" : known,
                                          "; a path has a '/' in it or ends in .gguf)"));
}

}  // namespace lm
