// What temp.lm_models holds: the names of a connection's models. Nothing is loaded here.
#ifndef LM_EXTENSION_CONNECTION_MODEL_NAMES_H_
#define LM_EXTENSION_CONNECTION_MODEL_NAMES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/model.h"
#include "engine/remote/remote_options.h"
#include "extension/connection/settings.h"
#include "extension/connection/spending.h"

namespace lm {

// A model as registered.
struct NamedModel {
  int64_t rowid = 0;
  std::string name;
  std::string path;     // absolute, or addresses on the network (engine/remote/remote_options.h)
  std::string options;  // JSON, or empty
  std::string source = {};  // what it was downloaded as: hf:...; empty: it was not
  std::string status = {};  // why it did not answer when it was checked; else empty
};

// Where a name leads, and how the file there is to be loaded.
struct ModelSource {
  std::string name;
  std::string path;
  ModelOptions options;
  std::string remote_options = {};  // JSON: of a model on the network
  Prices prices = {};               // of one here; how it is loaded does not depend on them

  bool is_remote() const { return IsRemotePath(path); }
  friend bool operator==(const ModelSource& a, const ModelSource& b) {
    return a.path == b.path && a.options == b.options && a.remote_options == b.remote_options;
  }
};

// The model of calls that name none, where neither lm_models nor the settings say otherwise:
// $LM_MODEL (PathFromStart), else debian-notes.gguf in the folder of this library (of the program,
// where it is linked statically) or in that folder's models/. FailedPrecondition, with the ways to
// name a model, where there is none.
absl::StatusOr<std::string> FindDefaultModel();

// A value type: transactions keep copies of it.
class ModelNames {
 public:
  // Adds a model, or replaces the one with its rowid. Checks that the file opens as a GGUF, or that
  // this process may speak to the address, and that the options are known; AlreadyExists for a name
  // that another row has.
  absl::Status Put(NamedModel model);
  void Remove(int64_t rowid);

  const NamedModel* Find(absl::string_view name) const;
  const NamedModel* Find(int64_t rowid) const;
  const std::vector<NamedModel>& models() const { return models_; }
  int64_t NextRowid() const;

  // Whether `reference` is the path of a file: it has a '/' in it, or ends in .gguf, and is no name
  // of ours.
  bool IsPath(absl::string_view reference) const;
  // InvalidArgument for an address, on a server or the hub, that is no name of ours.
  absl::Status CheckNotAddress(absl::string_view reference) const;

  // The model called `reference`: a name, else a path (AbsolutePath), else an error that lists the
  // names. Empty: the default one. An address must have a name: what a statement says beside its
  // data does not reach the network.
  absl::StatusOr<ModelSource> Resolve(absl::string_view reference, const Settings& settings) const;

 private:
  std::vector<NamedModel> models_;
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_MODEL_NAMES_H_
