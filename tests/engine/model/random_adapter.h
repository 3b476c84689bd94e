// Adapters (LoRA) with random numbers for a model file, and the model with their sums in its
// weights.
//
//   const RandomAdapter adapter(model_path, {.rank = 4, .alpha = 8, .seed = 1});
//   adapter.Write(adapter_path);
//   adapter.Merge(model_path, /*scale=*/0.5, merged_path);   // F32 weights only
#ifndef LM_TESTS_ENGINE_MODEL_RANDOM_ADAPTER_H_
#define LM_TESTS_ENGINE_MODEL_RANDOM_ADAPTER_H_

#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "engine/base/random.h"
#include "engine/gguf/gguf_file.h"
#include "tests/engine/gguf/gguf_builder.h"

namespace lm {

class RandomAdapter {
 public:
  struct Options {
    int64_t rank = 4;
    float alpha = 8;
    uint64_t seed = 1;
    // Which tensors it changes; by default those that are multiplied by.
    std::function<bool(const std::string& name)> changes = &IsMultipliedBy;
  };
  // What it adds to one tensor: `count` matrices (rows, cols), one below the other.
  struct Update {
    std::string name;
    int64_t rank = 0, count = 1, rows = 0, cols = 0;
    bool embedding = false;
    std::vector<float> a = {};  // (count * rank, cols), of an embedding (rows, rank)
    std::vector<float> b = {};  // (count * rows, rank), of an embedding (cols, rank)
  };

  explicit RandomAdapter(const std::string& model_path) : RandomAdapter(model_path, Options()) {}
  RandomAdapter(const std::string& model_path, const Options& options) : alpha_(options.alpha) {
    const auto gguf = GgufFile::Open(model_path).value();
    architecture_ = gguf->metadata().GetString("general.architecture").value();
    for (const TensorInfo& info : gguf->tensors()) {
      const std::string scale = info.name.substr(0, info.name.rfind('.')) + ".scale";
      // Experts whose results have scales of their own cannot be changed.
      if (info.dims.size() > 2 && gguf->FindTensor(scale) != nullptr) continue;
      if (!options.changes(info.name)) continue;
      Update update{.name = info.name, .rank = options.rank};
      update.count = info.dims.size() > 2 ? static_cast<int64_t>(info.dims[2]) : 1;
      update.rows = info.rows / update.count;
      update.cols = info.cols;
      update.embedding = info.name == "token_embd.weight";
      const int64_t outer = update.embedding ? update.rows : update.count * update.cols;
      const int64_t other = update.embedding ? update.cols : update.count * update.rows;
      // Sums that are about a third of what the weights of tests give.
      update.a = Numbers(options.seed, info.name + "a", outer * update.rank,
                         update.embedding ? 1 : 1 / std::sqrt(static_cast<float>(update.cols)));
      update.b = Numbers(options.seed, info.name + "b", other * update.rank,
                         0.5f / std::sqrt(static_cast<float>(update.rank)));
      updates_.push_back(std::move(update));
    }
  }

  // All weights that a row of activations meets, but for the embedding.
  static bool IsMultipliedBy(const std::string& name) {
    if (!absl::EndsWith(name, ".weight") || !absl::StartsWith(name, "blk.")) return false;
    for (const char* other :
         {"norm", "conv", "sinks", "ssm_a", "ssm_d.", "kv_b", "layer_output_scale"}) {
      if (absl::StrContains(name, other)) return false;
    }
    return true;
  }

  std::string Build() const {
    GgufBuilder builder;
    builder.Add("general.type", "adapter").Add("adapter.type", "lora");
    builder.Add("general.architecture", architecture_).Add("adapter.lora.alpha", alpha_);
    for (const Update& u : updates_) {
      auto dims = [&u](int64_t cols, int64_t rows) {
        std::vector<uint64_t> dims = {static_cast<uint64_t>(cols), static_cast<uint64_t>(rows)};
        if (u.count > 1) dims.push_back(u.count);
        return dims;
      };
      builder.AddTensor(u.name + ".lora_a", kGgmlF32,
                        u.embedding ? dims(u.rank, u.rows) : dims(u.cols, u.rank), Bytes(u.a));
      builder.AddTensor(u.name + ".lora_b", kGgmlF32,
                        u.embedding ? dims(u.rank, u.cols) : dims(u.rank, u.rows), Bytes(u.b));
    }
    return builder.Build();
  }
  void Write(const std::string& path) const { std::ofstream(path, std::ios::binary) << Build(); }

  // Adds scale * alpha / rank * B A (scale * B A where alpha is 0) to the weights of a file, and
  // writes it anew.
  void Merge(const std::string& model_path, float scale, const std::string& merged_path) const {
    std::ifstream in(model_path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(in)), {});
    const auto gguf = GgufFile::Open(model_path).value();
    for (const Update& u : updates_) {
      const double factor =
          double{scale} * (alpha_ == 0 ? 1 : alpha_ / static_cast<double>(u.rank));
      char* at = bytes.data() + gguf->FindTensor(u.name)->offset;
      for (int64_t i = 0; i < u.count * u.rows * u.cols; ++i, at += sizeof(float)) {
        const int64_t row = i / u.cols, col = i % u.cols, matrix = row / u.rows;
        double sum = 0;
        for (int64_t k = 0; k < u.rank; ++k) {
          sum += u.embedding
                     ? double{u.a[row * u.rank + k]} * u.b[col * u.rank + k]
                     : double{u.b[row * u.rank + k]} * u.a[(matrix * u.rank + k) * u.cols + col];
        }
        float weight;
        std::memcpy(&weight, at, sizeof(weight));
        weight = static_cast<float>(weight + factor * sum);
        std::memcpy(at, &weight, sizeof(weight));
      }
    }
    std::ofstream(merged_path, std::ios::binary) << bytes;
  }

  const std::vector<Update>& updates() const { return updates_; }

 private:
  // In [-size, size), the same for the same arguments everywhere.
  static std::vector<float> Numbers(uint64_t seed, const std::string& name, int64_t count,
                                    float size) {
    for (char c : name) seed = RandomBits(seed, static_cast<unsigned char>(c));
    std::vector<float> values(count);
    for (int64_t i = 0; i < count; ++i) {
      values[i] = size * static_cast<float>(2 * RandomUniform(seed, i) - 1);
    }
    return values;
  }

  std::string architecture_;
  float alpha_;
  std::vector<Update> updates_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_MODEL_RANDOM_ADAPTER_H_
