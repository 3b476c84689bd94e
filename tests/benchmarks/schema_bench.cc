// JSON Schemas with instances that are known to be valid or not: how many compile, and whether the
// automaton has a text for every valid instance and for no invalid one; the times of compilation
// and of masks over a synthetic vocabulary of 128,000 tokens. To be run by hand:
//
//   schema_bench [--masks] [--closed] [--list FILE] [--walks FILE] [--first N] DIRECTORY...
//
// DIRECTORY holds files of guidance-ai/jsonschemabench's maskbench/data (a schema and its tests) or
// of json-schema-org/JSON-Schema-Test-Suite's tests/draft2020-12 (an array of those). Each file is
// looked at in a process of its own, within a time and a memory limit. --list writes a line a
// schema, --walks some random texts of each grammar, for check_walks.py; --first takes N files,
// spread over all.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <limits>
#include <map>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/grammar/grammar.h"
#include "tests/benchmarks/schema_instances.h"
#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

using nlohmann::ordered_json;

constexpr int kVocabulary = 128'000;
constexpr rlim_t kSecondsAFile = 20;
constexpr rlim_t kBytesAFile = rlim_t{4} << 30;
constexpr size_t kMasksASchema = 200;
constexpr int kRounds = 3;

// Processor time of this thread. Other programs may be busy, and a new process's first touches of
// its memory are nothing of ours: so the least of kRounds.
double Microseconds() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

struct Settings {
  bool masks = false;
  bool closed = false;
  std::string list;
  std::string walks;
  size_t first = 0;
};

constexpr int kWalks = 3;

// Random texts of the grammar, over a small vocabulary.
ordered_json Walks(const std::shared_ptr<const Grammar>& grammar) {
  static const auto& trie = *new std::shared_ptr<const TokenTrie>(TrieOf(SomeVocabulary()));
  ordered_json walks = ordered_json::array();
  const auto constraint = Constraint::Create(grammar, trie);
  std::mt19937 dice(17);
  for (int i = 0; i < kWalks && constraint.ok(); ++i) {
    const auto text = RandomText(*constraint, &dice, /*soft_limit=*/50, /*hard_limit=*/3000);
    if (text.ok()) walks.push_back(*text);
  }
  return walks;
}

// The tokens of `text`, the longest first, and the time that the mask before each took, `most` of
// them: the least of kRounds, each of which finds nothing that another has computed.
std::vector<double> TimeMasks(const std::shared_ptr<const Grammar>& grammar,
                              const std::shared_ptr<const TokenTrie>& trie,
                              const std::map<std::string, int32_t>& ids, const std::string& text,
                              size_t most) {
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    const auto constraint = ValueOrDie(Constraint::Create(grammar, trie));
    GrammarMatcher matcher(constraint);
    std::vector<uint64_t> mask(matcher.mask_words());
    size_t number = 0;
    for (size_t pos = 0; pos < text.size() && number < most; ++number) {
      const double start = Microseconds();
      if (!matcher.FillMask(absl::MakeSpan(mask)).ok()) break;
      const double time = Microseconds() - start;
      if (number == times.size()) times.push_back(time);
      times[number] = std::min(times[number], time);
      size_t length = std::min<size_t>(text.size() - pos, 16);
      auto token = ids.end();
      for (; length > 0 && token == ids.end(); --length) token = ids.find(text.substr(pos, length));
      if (token == ids.end() || !matcher.Accept(token->second).ok()) break;
      pos += token->first.size();
    }
  }
  return times;
}

absl::StatusOr<std::shared_ptr<const Grammar>> Compile(const std::string& schema,
                                                       const Settings& settings) {
  return CompileJsonSchema(schema, {.additional = !settings.closed});
}

// What became of one schema, as a line of JSON.
ordered_json LookAt(const ordered_json& schema, const ordered_json& tests, const Settings& settings,
                    const std::shared_ptr<const TokenTrie>& trie,
                    const std::map<std::string, int32_t>& ids) {
  ordered_json result;
  const std::string text = schema.dump();
  absl::StatusOr<std::shared_ptr<const Grammar>> grammar;
  double least = std::numeric_limits<double>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    const double start = Microseconds();
    grammar = Compile(text, settings);
    least = std::min(least, Microseconds() - start);
  }
  result["compile_us"] = least;
  if (!grammar.ok()) {
    result["outcome"] = "refused";
    result["why"] = std::string(grammar.status().message());
    // Right to refuse: nothing is valid.
    if (absl::StrContains(grammar.status().message(), "no text fits") &&
        std::none_of(tests.begin(), tests.end(),
                     [](const ordered_json& test) { return test["valid"].get<bool>(); })) {
      result["outcome"] = "pass";
    }
    return result;
  }
  result["nodes"] = (*grammar)->automaton().nodes.size();
  InstanceSearch search(&(*grammar)->automaton());
  std::vector<double> masks;
  std::string outcome = "pass";
  for (const ordered_json& test : tests) {
    const InstanceSearch::Answer answer = search.Fits(test["data"], !test["valid"].get<bool>());
    if (answer == InstanceSearch::Answer::kYes && settings.masks) {
      const std::vector<double> times =
          TimeMasks(*grammar, trie, ids, search.text(), kMasksASchema - masks.size());
      masks.insert(masks.end(), times.begin(), times.end());
    }
    const bool valid = test["valid"].get<bool>();
    if ((answer == InstanceSearch::Answer::kYes) == valid &&
        answer != InstanceSearch::Answer::kUnknown) {
      continue;
    }
    const std::string fault = answer == InstanceSearch::Answer::kUnknown ? "undecided"
                              : valid ? "refuses a valid instance"
                                      : "accepts an invalid instance";
    if (outcome == "pass" || !valid) {
      outcome = fault;
      result["why"] = test["data"].dump().substr(0, 400);
    }
  }
  result["outcome"] = outcome;
  result["masks_us"] = masks;
  if (!settings.walks.empty()) {
    result["schema"] = schema;
    result["walks"] = Walks(*grammar);
  }
  return result;
}

// One file, in the process of its own: a line of JSON a schema to `out`.
void LookAtFile(const std::string& path, const Settings& settings,
                const std::shared_ptr<const TokenTrie>& trie,
                const std::map<std::string, int32_t>& ids, FILE* out) {
  std::ifstream file(path);
  const ordered_json content = ordered_json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (content.is_discarded()) return;
  const bool is_suite = content.is_array();
  const ordered_json groups = is_suite ? content : ordered_json::array({content});
  for (size_t i = 0; i < groups.size(); ++i) {
    if (!groups[i].contains("schema")) continue;
    ordered_json line = LookAt(groups[i]["schema"], groups[i].value("tests", ordered_json::array()),
                               settings, trie, ids);
    line["name"] = std::filesystem::path(path).filename().string() +
                   (is_suite ? "#" + groups[i]["description"].get<std::string>() : "");
    std::fputs((line.dump(-1, ' ', false, ordered_json::error_handler_t::replace) + "\n").c_str(),
               out);
  }
}

struct FileResult {
  std::string lines;
  bool ended = false;
  int64_t peak_kib = 0;
};

FileResult InProcess(const std::string& path, const Settings& settings,
                     const std::shared_ptr<const TokenTrie>& trie,
                     const std::map<std::string, int32_t>& ids) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    const rlimit seconds{kSecondsAFile, kSecondsAFile};  // of the processor
    const rlimit bytes{kBytesAFile, kBytesAFile};
    setrlimit(RLIMIT_CPU, &seconds);
    setrlimit(RLIMIT_AS, &bytes);
    FILE* out = fdopen(ends[1], "w");
    LookAtFile(path, settings, trie, ids, out);
    std::fclose(out);
    _exit(0);
  }
  close(ends[1]);
  FileResult result;
  char buffer[1 << 16];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;) result.lines.append(buffer, n);
  close(ends[0]);
  int status = 0;
  rusage usage{};
  wait4(child, &status, 0, &usage);
  result.ended = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  result.peak_kib = usage.ru_maxrss;
  return result;
}

void PrintTimes(const char* what, std::vector<double> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  auto at = [&](double share) {
    return times[std::min(times.size() - 1, static_cast<size_t>(share * times.size()))];
  };
  std::printf("%-8s p50 %.1f us  p90 %.1f us  p99 %.1f us  max %.1f us  (%zu)\n", what, at(0.5),
              at(0.9), at(0.99), times.back(), times.size());
  for (double limit = 1; limit <= 1e6; limit *= 10) {
    const auto within = std::upper_bound(times.begin(), times.end(), limit) - times.begin();
    std::printf("%s%.4f%% <= %.0f us", limit == 1 ? "         " : "  ",
                100.0 * static_cast<double>(within) / static_cast<double>(times.size()), limit);
  }
  std::printf("\n");
}

// A refusal without what is of one schema alone.
std::string Reason(std::string why) {
  if (size_t at = why.rfind(", at "); at != why.npos) why.resize(at);
  for (size_t begin = why.find('"'), end; begin != why.npos; begin = why.find('"', begin + 1)) {
    end = why.find('"', begin + 1);
    if (end == why.npos || end - begin <= 30) continue;
    why.replace(begin + 1, end - begin - 1, "...");
    begin += 4;
  }
  if (absl::StrContains(why, "no text fits")) why = "schema: no text fits";
  if (absl::StrContains(why, "outside of this schema")) why = "schema: $ref outside of this schema";
  return why.substr(0, 110);
}

void Main(const Settings& settings, const std::vector<std::string>& directories) {
  const std::vector<std::string> vocabulary = LargeVocabulary(kVocabulary);
  const auto trie = TrieOf(vocabulary);
  std::map<std::string, int32_t> ids;
  for (size_t id = 3; id < vocabulary.size(); ++id) {
    ids.emplace(vocabulary[id], static_cast<int32_t>(id));
  }
  std::vector<std::string> paths;
  for (const std::string& directory : directories) {
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.path().extension() == ".json") paths.push_back(entry.path());
    }
  }
  std::sort(paths.begin(), paths.end());
  if (settings.first > 0 && settings.first < paths.size()) {
    for (size_t i = 0; i < settings.first; ++i) {
      paths[i] = paths[i * paths.size() / settings.first];
    }
    paths.resize(settings.first);
  }
  std::map<std::string, int> outcomes, reasons;
  std::vector<double> compile, masks;
  std::vector<std::pair<int64_t, std::string>> largest;
  int64_t peak_kib = 0;
  std::ofstream list(settings.list), walks(settings.walks);
  for (const std::string& path : paths) {
    const FileResult result = InProcess(path, settings, trie, ids);
    peak_kib = std::max(peak_kib, result.peak_kib);
    if (!result.ended) ++outcomes["beyond the limits of a file"];
    if (!result.ended && list) list << "beyond the limits\t" << path << "\n";
    std::istringstream lines(result.lines);
    for (std::string line; std::getline(lines, line);) {
      const ordered_json one = ordered_json::parse(line, nullptr, false);
      if (one.is_discarded()) continue;
      const std::string outcome = one["outcome"];
      ++outcomes[outcome];
      if (outcome == "refused") ++reasons[Reason(one["why"])];
      compile.push_back(one["compile_us"]);
      if (one.contains("nodes")) largest.push_back({one["nodes"], one["name"]});
      for (const ordered_json& time : one.value("masks_us", ordered_json::array())) {
        masks.push_back(time);
      }
      if (one.contains("walks")) {
        const ordered_json texts = {
            {"name", one["name"]}, {"schema", one["schema"]}, {"walks", one["walks"]}};
        walks << texts.dump() << "\n";
      }
      if (list) {
        list << outcome << "\t" << one["name"].get<std::string>() << "\t"
             << one["compile_us"].get<double>() << "\t" << one.value("why", "") << "\n";
      }
    }
  }
  int total = 0;
  for (const auto& [outcome, count] : outcomes) total += count;
  std::printf("%d schemas of %zu files\n", total, paths.size());
  for (const auto& [outcome, count] : outcomes) std::printf("  %6d %s\n", count, outcome.c_str());
  std::vector<std::pair<int, std::string>> by_count;
  for (const auto& [reason, count] : reasons) by_count.push_back({count, reason});
  std::sort(by_count.rbegin(), by_count.rend());
  std::printf("refused, by reason:\n");
  for (size_t i = 0; i < std::min<size_t>(by_count.size(), 40); ++i) {
    std::printf("  %6d %s\n", by_count[i].first, by_count[i].second.c_str());
  }
  PrintTimes("compile", std::move(compile));
  PrintTimes("mask", std::move(masks));
  std::sort(largest.rbegin(), largest.rend());
  for (size_t i = 0; i < std::min<size_t>(largest.size(), 3); ++i) {
    std::printf("%ld nodes: %s\n", static_cast<long>(largest[i].first), largest[i].second.c_str());
  }
  std::printf("peak of one file's process: %ld MiB (with the vocabulary of %d tokens)\n",
              static_cast<long>(peak_kib >> 10), kVocabulary);
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  lm::Settings settings;
  std::vector<std::string> directories;
  for (int i = 1; i < argc; ++i) {
    if (!std::strcmp(argv[i], "--masks")) {
      settings.masks = true;
    } else if (!std::strcmp(argv[i], "--closed")) {
      settings.closed = true;
    } else if (!std::strcmp(argv[i], "--walks") && i + 1 < argc) {
      settings.walks = argv[++i];
    } else if (!std::strcmp(argv[i], "--first") && i + 1 < argc) {
      settings.first = static_cast<size_t>(std::atol(argv[++i]));
    } else if (!std::strcmp(argv[i], "--list") && i + 1 < argc) {
      settings.list = argv[++i];
    } else {
      directories.push_back(argv[i]);
    }
  }
  if (directories.empty()) {
    std::fprintf(stderr,
                 "usage: schema_bench [--masks] [--closed] [--list FILE] [--walks FILE] "
                 "[--first N] DIRECTORY...\n");
    return 2;
  }
  lm::Main(settings, directories);
}
