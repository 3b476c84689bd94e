// Writes a model as a GGUF file of another type (convert_model.h).
//
//   lm_convert SOURCE DESTINATION.gguf TYPE [texts=FILE] [importance=FILE] [threads=N]
//
// SOURCE is a GGUF file or a Hugging Face directory. A FILE has a text a line: `texts` are those of
// which the perplexity before and after is printed, `importance` others, whose activations say
// which weights must be exact. The file appears when all is done; SIGINT and SIGTERM leave nothing.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/cpu_features.h"
#include "engine/base/max_threads.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/status_macros.h"
#include "engine/convert/convert_model.h"
#include "engine/convert/text_runs.h"

namespace lm {
namespace {

struct Arguments {
  std::string source, destination, type;
  std::vector<std::string> texts, importance;
  int threads = AvailableCpus();
};

absl::StatusOr<std::vector<std::string>> Lines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  if (lines.empty()) return absl::NotFoundError(absl::StrCat("'", path, "' has no texts"));
  return lines;
}

absl::StatusOr<Arguments> Read(int argc, char** argv) {
  Arguments arguments;
  arguments.source = argv[1];
  arguments.destination = argv[2];
  arguments.type = argv[3];
  for (int i = 4; i < argc; ++i) {
    absl::string_view value = argv[i];
    if (absl::ConsumePrefix(&value, "texts=")) {
      ASSIGN_OR_RETURN(arguments.texts, Lines(std::string(value)));
    } else if (absl::ConsumePrefix(&value, "importance=")) {
      ASSIGN_OR_RETURN(arguments.importance, Lines(std::string(value)));
    } else if (!absl::ConsumePrefix(&value, "threads=") ||
               !absl::SimpleAtoi(value, &arguments.threads) || arguments.threads < 1 ||
               arguments.threads > kMaxThreads) {
      return absl::InvalidArgumentError(absl::StrCat(
          "wanted texts=FILE, importance=FILE or threads=1 to ", kMaxThreads, ", got ", argv[i]));
    }
  }
  return arguments;
}

// Set by SIGINT and SIGTERM: the conversion ends, and leaves nothing. The second one kills.
std::atomic<bool> interrupted{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void Interrupt(int signal) {
  interrupted = true;
  std::signal(signal, SIG_DFL);
}

absl::Status Run(int argc, char** argv) {
  ASSIGN_OR_RETURN(const Arguments arguments, Read(argc, argv));
  RETURN_IF_ERROR(CheckConversion(arguments.destination, arguments.type));
  const CheckpointScope scope([] { return interrupted.load(); });
  for (const int signal : {SIGINT, SIGTERM}) std::signal(signal, &Interrupt);
  auto measure = [&](const char* when, const std::string& model) -> absl::Status {
    if (arguments.texts.empty()) return absl::OkStatus();
    ASSIGN_OR_RETURN(const double perplexity,
                     MeasurePerplexity(model, arguments.texts, arguments.threads, interrupted));
    std::printf("perplexity %s %.5f\n", when, perplexity);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(measure("before", arguments.source));
  Importance importance;
  if (!arguments.importance.empty()) {
    ASSIGN_OR_RETURN(importance, MeasureImportance(arguments.source, arguments.importance,
                                                   arguments.threads, interrupted));
  }
  ASSIGN_OR_RETURN(
      const ConvertReport report,
      ConvertModel(arguments.source, arguments.destination, arguments.type, arguments.threads,
                   importance, [&](const std::string& path) { return measure("after ", path); }));
  std::printf("%lld tensors, %lld bytes (were %lld)\n", static_cast<long long>(report.tensors),
              static_cast<long long>(report.bytes), static_cast<long long>(report.source_bytes));
  return absl::OkStatus();
}

absl::Status RunGuarded(int argc, char** argv) {
  try {
    return Run(argc, argv);
  } catch (...) {
    return CurrentExceptionAsStatus();
  }
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr,
                 "usage: lm_convert SOURCE DESTINATION.gguf F32|F16|BF16|Q8_0|Q6_K|Q4_0|Q4_K_M "
                 "[texts=FILE] [importance=FILE] [threads=N]\n");
    return 2;
  }
  const absl::Status status = lm::RunGuarded(argc, argv);
  if (status.ok()) return 0;
  std::fprintf(stderr, "lm_convert: %s\n", std::string(status.message()).c_str());
  return 1;
}
