// Writes a model as a GGUF file of another type (convert_model.h).
//
//   lm_convert SOURCE DESTINATION.gguf TYPE
//
// SOURCE is a GGUF file or a Hugging Face directory.
#include <cstdio>

#include "engine/base/cpu_features.h"
#include "engine/convert/convert_model.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr,
                 "usage: lm_convert SOURCE DESTINATION.gguf F32|F16|BF16|Q8_0|Q6_K|Q4_0|Q4_K_M\n");
    return 2;
  }
  const absl::StatusOr<lm::ConvertReport> report =
      lm::ConvertModel(argv[1], argv[2], argv[3], lm::AvailableCpus());
  if (!report.ok()) {
    std::fprintf(stderr, "lm_convert: %s\n", std::string(report.status().message()).c_str());
    return 1;
  }
  std::printf("%lld tensors, %lld bytes (were %lld)\n", static_cast<long long>(report->tensors),
              static_cast<long long>(report->bytes), static_cast<long long>(report->source_bytes));
  return 0;
}
