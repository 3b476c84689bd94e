#include "engine/model/task_prefixes.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/printable.h"

namespace lm {
namespace {

constexpr absl::string_view kTasks[] = {"query", "document", "classification", "clustering",
                                        "similarity"};

struct ModelPrefixes {
  absl::string_view architecture;  // of any name; empty: it is known by name
  absl::string_view name;     // a part of it, in lower case, "-" for all but letters and digits
  absl::string_view without;  // that the name must not have
  // For each of kTasks; null: not known.
  const char* prefixes[std::size(kTasks)];
};

constexpr char kPassages[] = "Represent this sentence for searching relevant passages: ";

// From the models' cards. The first one that fits counts.
constexpr ModelPrefixes kModels[] = {
    {"gemma-embedding",
     "",
     "",
     {"task: search result | query: ", "title: none | text: ", "task: classification | query: ",
      "task: clustering | query: ", "task: sentence similarity | query: "}},
    {"",
     "embeddinggemma",
     "",
     {"task: search result | query: ", "title: none | text: ", "task: classification | query: ",
      "task: clustering | query: ", "task: sentence similarity | query: "}},
    {"",
     "nomic-embed-text",
     "",
     {"search_query: ", "search_document: ", "classification: ", "clustering: ", nullptr}},
    {"", "bge-m3", "", {"", "", "", "", ""}},
    {"", "bge-small-en", "", {kPassages, "", nullptr, nullptr, ""}},
    {"", "bge-base-en", "", {kPassages, "", nullptr, nullptr, ""}},
    {"", "bge-large-en", "", {kPassages, "", nullptr, nullptr, ""}},
    {"", "mxbai-embed", "", {kPassages, "", nullptr, nullptr, ""}},
    {"", "arctic-embed-l-v2", "", {"query: ", "", nullptr, nullptr, nullptr}},
    {"", "arctic-embed-m-v2", "", {"query: ", "", nullptr, nullptr, nullptr}},
    {"", "arctic-embed", "", {kPassages, "", nullptr, nullptr, nullptr}},
    {"", "e5-", "instruct", {"query: ", "passage: ", "query: ", "query: ", "query: "}},
    {"",
     "qwen3-embedding",
     "",
     {"Instruct: Given a web search query, retrieve relevant passages "
      "that answer the query\nQuery:",
      "", nullptr, nullptr, nullptr}},
};

std::string Simplified(absl::string_view name) {
  std::string simple = absl::AsciiStrToLower(name);
  for (char& c : simple) {
    if (!absl::ascii_isalnum(c)) c = '-';
  }
  return simple;
}

const ModelPrefixes* FindModel(const ModelInfo& info) {
  // Converters shorten names; files keep them.
  const std::string names = absl::StrCat(
      Simplified(info.name), "|", Simplified(std::filesystem::path(info.path).stem().string()));
  const ModelPrefixes* found =
      std::find_if(std::begin(kModels), std::end(kModels), [&](const ModelPrefixes& m) {
        if (!m.architecture.empty()) return info.architecture == m.architecture;
        return absl::StrContains(names, m.name) &&
               (m.without.empty() || !absl::StrContains(names, m.without));
      });
  return found == std::end(kModels) ? nullptr : found;
}

}  // namespace

absl::StatusOr<absl::string_view> TaskPrefix(const ModelInfo& info, absl::string_view task) {
  const auto* const known = std::find(std::begin(kTasks), std::end(kTasks), task);
  if (known == std::end(kTasks)) {
    return absl::InvalidArgumentError(
        absl::StrCat("task must be 'query', 'document', 'classification', 'clustering' or "
                     "'similarity', got '",
                     Printable(task.substr(0, 64)), "'"));
  }
  const ModelPrefixes* model = FindModel(info);
  const char* prefix = model == nullptr ? nullptr : model->prefixes[known - std::begin(kTasks)];
  if (prefix != nullptr) return prefix;
  return absl::InvalidArgumentError(
      absl::StrCat("what model '", Printable(info.name), "' wants to read before a text for task '",
                   task, "' is not known here: put it before the text, if its card says any"));
}

}  // namespace lm
