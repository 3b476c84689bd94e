// lm_version()   TEXT: the version of sqlite-lm
// lm_debug()     JSON: what a report of a problem should begin with
//
//   SELECT lm_version();                                                 -- 0.1.0
//   SELECT key, value FROM json_each(lm_debug());
//     version    0.1.0
//     build      g++ 12.2.0
//     isa        avx512_vnni            the kernels chosen on this processor
//     threads    2                      what a model uses unless told otherwise
//     sqlite     {"running":"3.40.1","compiled":"3.40.1"}
//     backends   ["cpu","reference"]
//     network    true                   whether this build can ask models elsewhere
//     models     {"default":"..."}      names and paths, none of them loaded by this
//     engines    [{"model":"...", ...}] those running in this process now
//     apart      null                   why lm_running and other processes do not see each other
#include <string>
#include <utility>

#include "engine/backend/registry.h"
#include "engine/base/cpu_features.h"
#include "engine/base/json.h"
#include "engine/remote/remote_generator.h"
#include "engine/runtime/generator_registry.h"
#include "extension/binding/scalar_function.h"
#include "extension/connection/process_sockets.h"
#include "extension/functions/functions.h"
#include "lm/lm.h"

namespace lm {
namespace {

absl::Status Version(Call& call) {
  ResultText(call.context(), lm_version());
  return absl::OkStatus();
}

Json Backends() {
  Json names = Json::MakeArray();
  for (const BackendOptions& backend : AvailableBackends()) {
    if (names.size() == 0 || names.array().back() != Json(backend.device)) {
      names.Append(backend.device);
    }
  }
  return names;
}

Json Models(const Connection& connection) {
  Json models = Json::MakeObject();
  for (const NamedModel& model : connection.names().models()) models.Add(model.name, model.path);
  if (!models.Has("default")) {
    absl::StatusOr<std::string> path = FindDefaultModel();
    models.Add("default", path.ok() ? Json(*path) : Json());
  }
  return models;
}

Json Engines() {
  Json engines = Json::MakeArray();
  for (const std::shared_ptr<Generator>& generator : RunningGenerators()) {
    const ModelInfo& info = generator->info();
    Json one = Json::MakeObject();
    one.Add("model", info.name);
    one.Add("path", info.path);
    one.Add("architecture", info.architecture);
    one.Add("quantisation", info.quantisation);
    one.Add("device", info.device);
    one.Add("weight_bytes", info.weight_bytes);
    one.Add("kv_bytes", info.kv_bytes);
    one.Add("kv_type", KvTypeName(info.kv_type));
    engines.Append(std::move(one));
  }
  return engines;
}

absl::Status Debug(Call& call) {
  Json sqlite = Json::MakeObject();
  sqlite.Add("running", sqlite3_libversion()).Add("compiled", SQLITE_VERSION);
  Json report = Json::MakeObject();
  report.Add("version", lm_version());
  report.Add("build", "g++ " __VERSION__);
  report.Add("isa", IsaName(BestIsa()));
  report.Add("threads", DefaultThreads());
  report.Add("sqlite", std::move(sqlite));
  report.Add("backends", Backends());
  report.Add("network", HasNetwork());
  report.Add("models", Models(call.connection()));
  report.Add("engines", Engines());
  const absl::Status apart = WhyApart();
  report.Add("apart", apart.ok() ? Json() : Json(apart.message()));
  ResultJson(call.context(), report.Dump());
  return absl::OkStatus();
}

}  // namespace

int RegisterVersion(const std::shared_ptr<Connection>& connection) {
  int code = RegisterScalar<&Version>(connection, {"lm_version", 0, 0, 0});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&Debug>(connection, {"lm_debug", 0, 0, kDirectOnly | kReturnsJson});
}

}  // namespace lm
