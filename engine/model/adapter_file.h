// The files beside a model's own that ModelOptions name: adapters (LoRA), a draft model, a chat
// template.
#ifndef LM_ENGINE_MODEL_ADAPTER_FILE_H_
#define LM_ENGINE_MODEL_ADAPTER_FILE_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/split_files.h"
#include "engine/model/model_options.h"

namespace lm {

// A file that is an adapter.
struct AdapterFile {
  std::string name;
  std::unique_ptr<GgufFile> gguf;
  float alpha = 0;  // what it adds is times alpha / rank; 0: as it is
};

// Whether the file says that it is an adapter and no model.
bool IsAdapter(const Metadata& metadata);

// The status with the adapter's name in front.
absl::Status OfAdapter(absl::string_view name, const absl::Status& status);

// Opens the adapters of a model at that path and of that architecture, in their order; a relative
// path is seen from the model's folder. InvalidArgument, naming the adapter, for a file that is
// none, of another kind than LoRA, or for another architecture; else GgufFile::Open's errors.
// Whether its tensors fit the model's is seen when they are loaded.
absl::StatusOr<std::vector<AdapterFile>> OpenAdapters(const std::string& model_path,
                                                      absl::string_view architecture,
                                                      const std::vector<AdapterOption>& options,
                                                      const std::atomic<bool>* cancel = nullptr);

// Where the draft model of the options is; likewise. REQUIRES: there is one.
std::string DraftPath(const std::string& model_path, const ModelOptions& options);

// Where the chat template of the options is; empty: in the options, or there is none.
std::string ChatTemplatePath(const std::string& model_path, const ModelOptions& options);
// Its text, empty where there is none. OpenFile's errors; InvalidArgument for more than 1 MiB.
absl::StatusOr<std::string> ReadChatTemplate(const std::string& model_path,
                                             const ModelOptions& options);

// The files that loading a model so would read. Errors: as IdentifyModel's.
absl::StatusOr<ModelIdentity> IdentifyFiles(const std::string& model_path,
                                            const ModelOptions& options);

}  // namespace lm

#endif  // LM_ENGINE_MODEL_ADAPTER_FILE_H_
