// GGUF files: any bytes are refused or give a file that can be read whole.
#include <memory>
#include <string>
#include <vector>

#include "engine/gguf/block_format.h"
#include "engine/gguf/gguf_file.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

// A message can be shown as it is.
void RequirePrintable(const absl::Status& status) {
  Require(!status.message().empty() && status.message().size() < 2000, "a message of sane length");
  for (char c : status.message()) Require(c >= ' ' && c <= '~', "a message in printable ASCII");
}

void CallEveryGetter(const Metadata& metadata) {
  for (const auto& [key, value] : metadata.values()) {
    int found = metadata.GetString(key).ok() + metadata.GetInt(key).ok() +
                metadata.GetFloat(key).ok() + metadata.GetBool(key).ok() +
                metadata.GetStrings(key).ok() + metadata.GetInts(key).ok() +
                metadata.GetFloats(key).ok();
    Require(found <= 1, "a value of one type");
  }
}

void ReadTensors(const GgufFile& gguf) {
  uint64_t sum = 0;
  for (const TensorInfo& tensor : gguf.tensors()) {
    Require(gguf.FindTensor(tensor.name) == &tensor, "a tensor is found by its name");
    sum += tensor.bytes;
    Require(sum <= gguf.bytes(), "tensors fit in the file");
    Require(tensor.bytes == static_cast<uint64_t>(RowBytes(tensor.dtype, tensor.cols)) *
                                static_cast<uint64_t>(tensor.rows),
            "rows and bytes agree");
    std::vector<char> bytes(tensor.bytes);
    Require(gguf.ReadTensor(tensor, absl::MakeSpan(bytes)).ok(), "a tensor can be read");
    std::vector<float> row(tensor.cols);
    DequantizeRow(tensor.dtype, bytes.data(), tensor.cols, row.data());
    if (absl::Status status = CheckFinite(tensor.dtype, bytes.data(), tensor.rows * tensor.cols);
        !status.ok()) {
      RequirePrintable(status);
    }
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (uint32_t version : {2u, 3u}) {
    seeds.push_back(GgufBuilder()
                        .Version(version)
                        .Add("general.architecture", "llama")
                        .Add("u8", uint8_t{1})
                        .Add("i16", int16_t{-1})
                        .Add("f64", 0.5)
                        .Add("bool", true)
                        .Add("bools", std::vector<bool>{true, false})
                        .Add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"})
                        .Add("tokenizer.ggml.scores", std::vector<float>{0, -1, -2})
                        .AddTensor("a", DType::kF32, {3, 2}, std::string(24, '\1'))
                        .AddTensor("b", DType::kQ8_0, {32, 2}, std::string(68, '\2'))
                        .AddTensor("c", DType::kQ4_K, {256}, std::string(144, '\3'))
                        .Build());
  }
  seeds.push_back(GgufBuilder()
                      .Alignment(8)
                      .Add("split.no", uint16_t{0})
                      .Add("split.count", uint16_t{1})
                      .AddTensor("x", DType::kBF16, {1, 1, 1, 1}, std::string(2, '\1'))
                      .AddTensor("y", DType::kIQ4_XS, {256}, std::string(136, '\1'))
                      .Build());
  seeds.push_back(GgufBuilder().Build());
  return seeds;
}

std::vector<std::string> FuzzWords() {
  return {"general.alignment",   "general.architecture",  "split.no", "split.count",
          "split.tensors.count", "tokenizer.ggml.tokens", "GGUF"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  auto gguf = lm::OpenGguf(std::move(bytes));
  if (!gguf.ok()) {
    lm::RequirePrintable(gguf.status());
    return 0;
  }
  lm::CallEveryGetter((*gguf)->metadata());
  lm::ReadTensors(**gguf);
  return 0;
}
