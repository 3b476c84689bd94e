// sqlite-lm doctor: what there is on this machine, and what would be faster.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

std::string Network(bool built_in) {
  const char* network = std::getenv("LM_NETWORK");
  if (network != nullptr && absl::EqualsIgnoreCase(network, "off")) return "off (LM_NETWORK)";
  if (!built_in) return "none in this build";
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if (dlopen(name, RTLD_LAZY | RTLD_LOCAL) != nullptr) return absl::StrCat("on, by ", name);
  }
  return "there is no libcurl: models elsewhere cannot be asked (Debian: apt install libcurl4)";
}

// Whether the model runs here, by its file; a server is not asked.
absl::Status Inspect(Session& session, const std::string& path) {
  if (absl::StrContains(path, "://")) return absl::OkStatus();
  const auto rows = session.Query("SELECT problem FROM lm_inspect(?1)", {path});
  if (rows.ok() && (rows->empty() || (*rows)[0][0].empty())) return absl::OkStatus();
  const std::string why(rows.ok() ? (*rows)[0][0] : std::string(rows.status().message()));
  return absl::FailedPreconditionError(absl::StrCat("the model cannot be used: ", why));
}

absl::Status RunDoctor(const Arguments& arguments) {
  if (!arguments.rest().empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", Printable(arguments.rest()[0]), "': it takes no files (--model FILE)"));
  }
  ASSIGN_OR_RETURN(const auto session, Session::Open(":memory:", arguments));
  ASSIGN_OR_RETURN(const auto build,
                   session->Query("SELECT lm_debug() ->> '$.version', lm_debug() ->> '$.build', "
                                  "sqlite_version(), lm_debug(), lm_debug() ->> '$.network'"));
  ASSIGN_OR_RETURN(
      const auto devices,
      session->Query(
          "SELECT device, name, features, threads, usable, coalesce(reason, ''), "
          "read_bytes_per_second, fp32_flops_per_second, int8_ops_per_second FROM lm_devices"));
  ASSIGN_OR_RETURN(const auto model,
                   session->Query("SELECT path FROM lm_models WHERE name = 'default'"));
  const std::string path = model.empty() ? "none" : model[0][0];
  const absl::Status usable = model.empty() ? absl::OkStatus() : Inspect(*session, path);
  if (arguments.Has("json")) {
    std::printf("%s\n", build[0][3].c_str());
    return usable;
  }
  std::vector<std::vector<std::string>> facts = {
      {"sqlite-lm", absl::StrCat(build[0][0], ", ", build[0][1], ", SQLite ", build[0][2])},
      {"network", Network(build[0][4] == "1")}};
  std::vector<std::string> hints;
  for (const Session::Values& device : devices) {
    auto number = [&device](size_t i) { return std::strtod(device[i].c_str(), nullptr); };
    if (device[4] != "1") {
      facts.push_back({device[0], absl::StrCat(device[1], device[1].empty() ? "" : ": ",
                                               "not usable: ", device[5])});
      continue;
    }
    facts.push_back(
        {device[0],
         absl::StrCat(device[1], device[1].empty() ? "" : ", ", device[2],
                      device[3].empty() ? "" : absl::StrCat(", ", device[3], " threads"))});
    if (device[0] != "cpu") continue;
    facts.push_back(
        {"", absl::StrCat("reads ", Bytes(number(6)), "/s, ", Fixed(number(7) / 1e9, 0),
                          " GFLOP/s in float32, ", Fixed(number(8) / 1e9, 0), " GOP/s in int8")});
    facts.push_back({"", absl::StrCat("at most ", Fixed(number(6) / 1e9, 1),
                                      " tokens/s a row of a model of 1 GB")});
    if (number(3) < 4)
      hints.push_back("few threads: several rows at a time gain most here (they decode together)");
    if (device[2] == "portable")
      hints.push_back("this processor has neither AVX2 nor AVX-512: plain loops run, slowly");
  }
  facts.push_back(
      {"model", absl::StrCat(session->model_is_named() ? "" : "the one that ships, ", path)});
  if (!session->model_is_named()) {
    hints.push_back("name a model: LM_MODEL=model.gguf or --model; `sqlite-lm models` finds files");
  }
  std::fputs(Table(facts).c_str(), stdout);
  for (const std::string& hint : hints) std::printf("- %s\n", hint.c_str());
  return usable;
}

}  // namespace

Command DoctorCommand() {
  return {"doctor",
          "",
          "what there is on this machine, and what would be faster",
          "Measures the processor for a quarter of a second.",
          {{"json", nullptr, "what lm_debug() says"}},
          true,
          RunDoctor};
}

}  // namespace lm::cli
