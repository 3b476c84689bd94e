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
//     models     {"default":"..."}      names and paths, none of them loaded by this
//     engines    [{"model":"...", ...}] those running in this process now
#include <nlohmann/json.hpp>
#include <string>

#include "engine/backend/registry.h"
#include "engine/base/cpu_features.h"
#include "engine/runtime/engine_registry.h"
#include "extension/registrations.h"
#include "extension/scalar_function.h"
#include "lm/lm.h"

namespace lm {
namespace {

using nlohmann::ordered_json;

absl::Status Version(Call& call) {
  ResultText(call.context(), lm_version());
  return absl::OkStatus();
}

ordered_json Backends() {
  ordered_json names = ordered_json::array();
  for (const BackendOptions& backend : AvailableBackends()) {
    if (names.empty() || names.back() != backend.device) names.push_back(backend.device);
  }
  return names;
}

ordered_json Models(const Connection& connection) {
  ordered_json models = ordered_json::object();
  for (const NamedModel& model : connection.names().models()) models[model.name] = model.path;
  if (!models.contains("default")) {
    absl::StatusOr<std::string> path = FindDefaultModel();
    models["default"] = path.ok() ? ordered_json(*path) : ordered_json(nullptr);
  }
  return models;
}

ordered_json Engines() {
  ordered_json engines = ordered_json::array();
  for (const std::shared_ptr<Engine>& engine : RunningEngines()) {
    const ModelInfo& info = engine->model().info();
    engines.push_back({{"model", info.name},
                       {"path", info.path},
                       {"architecture", info.architecture},
                       {"quantisation", info.quantisation},
                       {"device", info.device},
                       {"weight_bytes", info.weight_bytes},
                       {"kv_bytes", info.kv_bytes},
                       {"kv_type", std::string(KvTypeName(info.kv_type))}});
  }
  return engines;
}

absl::Status Debug(Call& call) {
  ordered_json report;
  report["version"] = lm_version();
  report["build"] = "g++ " __VERSION__;
  report["isa"] = std::string(IsaName(BestIsa()));
  report["threads"] = AvailableCpus();
  report["sqlite"] = {{"running", sqlite3_libversion()}, {"compiled", SQLITE_VERSION}};
  report["backends"] = Backends();
  report["models"] = Models(call.connection());
  report["engines"] = Engines();
  ResultJson(call.context(), report.dump(-1, ' ', false, ordered_json::error_handler_t::replace));
  return absl::OkStatus();
}

}  // namespace

int RegisterVersion(const std::shared_ptr<Connection>& connection) {
  int code = RegisterScalar<&Version>(connection, {"lm_version", 0, 0, 0});
  if (code != SQLITE_OK) return code;
  return RegisterScalar<&Debug>(connection, {"lm_debug", 0, 0, kDirectOnly | kReturnsJson});
}

}  // namespace lm
