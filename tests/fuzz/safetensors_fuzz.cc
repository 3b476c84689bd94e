// Headers of safetensors: any bytes are refused with a message that can be shown, or give tensors
// that lie in the file.
#include <memory>
#include <string>
#include <vector>

#include "engine/hf/safetensors.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

std::string File(const std::string& header, size_t bytes) {
  return StringBytes(header) + std::string(bytes, '\1');
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {
      File(
          R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})",
          32),
      File(
          R"({"__metadata__":{"format":"pt"},"x.qweight":{"dtype":"I32","shape":[1,1],"data_offsets":[0,4]}})",
          4),
      File("{}", 0),
  };
}

std::vector<std::string> FuzzWords() {
  return {"\"dtype\":",
          "\"shape\":",
          "\"data_offsets\":",
          "\"F16\"",
          "\"I64\"",
          "\"F8_E4M3\"",
          "[0,0]",
          "[]",
          "[1,0,3]",
          "-1",
          "1.0",
          "4294967296",
          "\"__metadata__\":",
          "18446744073709551615",
          "9223372036854775807"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  // Most changes make the length of the header wrong, which would hide the rest.
  if (size >= 8 && data[size - 1] % 2 == 1) {
    const size_t end = bytes.rfind('}');
    if (end != std::string::npos && end >= 8) {
      bytes.replace(0, 8, lm::Bytes<uint64_t>(end + 1 - 8));
    }
  }
  const auto tensors = lm::ReadSafetensors(std::make_shared<lm::MemoryFile>(bytes, "memory"));
  if (!tensors.ok()) {
    lm::RequireShowable(tensors.status());
    return 0;
  }
  for (const lm::StoredTensor& tensor : *tensors) {
    lm::Require(tensor.offset <= size && tensor.bytes <= size - tensor.offset,
                "a tensor lies in the file");
    std::string read(tensor.bytes, '\0');
    lm::Require(tensor.file->Read(tensor.offset, absl::MakeSpan(read.data(), read.size())).ok(),
                "a tensor can be read");
  }
  return 0;
}
