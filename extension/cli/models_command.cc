// sqlite-lm models: what models there are, and whether they run here.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/cpu_features.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "extension/cli/command.h"
#include "extension/cli/session.h"
#include "extension/cli/terminal.h"

namespace lm::cli {
namespace {

namespace fs = std::filesystem;

// Of what a file says in a cell, in bytes.
constexpr size_t kMostText = 200;

// Where people keep them.
std::vector<std::string> UsualPlaces() {
  std::vector<std::string> places = {"."};
  if (const char* model = std::getenv("LM_MODEL")) places.emplace_back(model);
  const char* home = std::getenv("HOME");
  if (home == nullptr) return places;
  for (const char* folder : {"models", ".cache/sqlite-lm", ".cache/llama.cpp",
                             ".cache/huggingface/hub", ".lmstudio/models"}) {
    places.push_back(absl::StrCat(home, "/", folder));
  }
  return places;
}

// A folder as Hugging Face has them; that of a part of a model has a config.json, too, but no
// weights.
bool IsModelFolder(const fs::path& folder) {
  auto has = [&folder](const char* name) {
    std::error_code ignored;
    return fs::exists(folder / name, ignored);
  };
  return has("config.json") && (has("model.safetensors") || has("model.safetensors.index.json"));
}

// Of a split model the first file only.
bool IsModel(const fs::directory_entry& entry) {
  std::error_code ignored;
  if (entry.is_directory(ignored)) return IsModelFolder(entry.path());
  if (!entry.is_regular_file(ignored)) return false;
  const std::string name = entry.path().filename().string();
  return absl::EndsWithIgnoreCase(name, ".gguf") &&
         (!absl::StrContains(name, "-of-") || absl::StrContains(name, "-00001-of-"));
}

std::vector<std::string> FindModels(const std::vector<std::string>& places) {
  std::vector<std::string> found;
  for (const std::string& place : places) {
    std::error_code error;
    if (!fs::is_directory(place, error)) {
      if (fs::exists(place, error)) found.push_back(place);
      continue;
    }
    if (IsModelFolder(place)) found.push_back(place);
    const auto options = fs::directory_options::skip_permission_denied;
    fs::recursive_directory_iterator files(place, options, error);
    for (const fs::recursive_directory_iterator end; !error && files != end;
         files.increment(error)) {
      if (place == "." && files.depth() > 1) files.disable_recursion_pending();
      if (IsModel(*files)) found.push_back(files->path().string());
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Of what the arguments name, the places and, apart from them, what lm_inspect knows to find: a
// model of the hub, or a name.
absl::Status ReadPlaces(Session& session, const Arguments& arguments,
                        std::vector<std::string>* places, std::vector<std::string>* models) {
  for (const std::string& place : arguments.rest()) {
    std::error_code error;
    if (fs::exists(place, error)) {
      places->push_back(place);
      continue;
    }
    ASSIGN_OR_RETURN(const auto named,
                     session.Query("SELECT 1 FROM temp.lm_models WHERE name = ?1", {place}));
    if (named.empty() && !absl::StartsWith(place, "hf:")) {
      return absl::NotFoundError(
          absl::StrCat(place, ": ", error ? error.message() : "no such file or folder"));
    }
    models->push_back(place);
  }
  return absl::OkStatus();
}

absl::Status RunModels(const Arguments& arguments) {
  ASSIGN_OR_RETURN(const auto session, Session::Open(":memory:", arguments));
  std::vector<std::string> places, models;
  RETURN_IF_ERROR(ReadPlaces(*session, arguments, &places, &models));
  std::vector<std::string> files = FindModels(arguments.rest().empty() ? UsualPlaces() : places);
  files.insert(files.end(), models.begin(), models.end());
  const std::vector<std::string>& named = arguments.rest();
  bool all_are_models = true;  // of those that are named: in a folder there may be others
  std::vector<std::vector<std::string>> table = {
      {"file", "family", "parameters", "size", "memory, 1 row", "16 rows", ""}};
  for (const std::string& file : files) {
    const auto rows = session->Query(
        "SELECT family, parameters, bytes, memory_1, memory_16, problem, json_object('file', ?1, "
        "'family', family, "
        "'parameters', parameters, 'bytes', bytes, 'memory_1', memory_1, 'memory_16', memory_16, "
        "'problem', problem) "
        "FROM lm_inspect(?1)",
        {file});
    if (Session::interrupted()) return absl::CancelledError("interrupted");
    const bool typed = std::find(models.begin(), models.end(), file) != models.end();
    if (!rows.ok() && typed) return rows.status();
    all_are_models &= rows.ok() || std::find(named.begin(), named.end(), file) == named.end();
    if (!rows.ok() && arguments.Has("json")) {
      Json object = Json::MakeObject();
      object.Add("file", file);
      object.Add("problem", rows.status().message());
      std::printf("%s\n", object.Dump().c_str());
      continue;
    }
    if (!rows.ok()) {
      table.push_back({file, "", "", "", "", "", Beginning(rows.status().message(), kMostText)});
      continue;
    }
    const Session::Values& row = (*rows)[0];
    auto number = [&row](size_t i) { return std::strtod(row[i].c_str(), nullptr); };
    if (arguments.Has("json")) {
      std::printf("%s\n", row[6].c_str());
      continue;
    }
    std::string verdict = row[5];
    if (verdict.empty())
      verdict = number(3) > static_cast<double>(AvailableMemoryBytes())
                    ? "needs more memory than there is"
                    : "runs here";
    table.push_back({file, Beginning(row[0], kMostText), Count(number(1)), Bytes(number(2)),
                     row[3].empty() ? "" : Bytes(number(3)), row[4].empty() ? "" : Bytes(number(4)),
                     Beginning(verdict, kMostText)});
  }
  if (arguments.Has("json")) {
    // Each has been printed.
  } else if (files.empty()) {
    std::puts("There are no models here. The README names three to begin with.");
  } else {
    std::fputs(Table(table).c_str(), stdout);
  }
  return all_are_models ? absl::OkStatus()
                        : absl::FailedPreconditionError("not all of these files are models");
}

}  // namespace

Command ModelsCommand() {
  return {"models",
          "[FILE|FOLDER|hf:OWNER/NAME...]",
          "which models run here, in how much memory",
          "Looks for GGUF files, and for folders as Hugging Face has them, in the folders given, "
          "else in this one and where people\n"
          "keep models. Loads none. Memory is that of the weights and of a cache of 2,048 tokens a "
          "row.",
          {{"json", nullptr, "one object a file"}},
          false,
          RunModels};
}

}  // namespace lm::cli
