// A GGUF file of one small llama, for tests that change it.
#ifndef LM_TESTS_ENGINE_MODEL_SMALL_MODEL_H_
#define LM_TESTS_ENGINE_MODEL_SMALL_MODEL_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/model.h"
#include "tests/engine/gguf/gguf_builder.h"

namespace lm {

// A llama of one layer whose parts can be changed or left out before it is written.
struct SmallModel {
  using WriteKey = std::function<void(GgufBuilder&, const std::string& key)>;
  struct TensorSpec {
    std::vector<uint64_t> dims;  // contiguous dimension first
    float value = 0.5f;          // of the one in the middle; the others are `fill`
  };

  template <typename T>
  void Set(const std::string& key, T value) {
    keys[key] = [value](GgufBuilder& builder, const std::string& k) { builder.Add(k, value); };
  }

  SmallModel() {
    Set("general.architecture", std::string("llama"));
    Set("llama.block_count", uint32_t{1});
    Set("llama.embedding_length", uint32_t{32});
    Set("llama.feed_forward_length", uint32_t{48});
    Set("llama.context_length", uint32_t{64});
    Set("llama.attention.head_count", uint32_t{4});
    Set("llama.attention.head_count_kv", uint32_t{2});
    Set("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    Set("tokenizer.ggml.model", std::string("llama"));
    SetTokens({}, 0);
    tensors["output_norm.weight"] = {{32}};
    tensors["blk.0.attn_norm.weight"] = {{32}};
    tensors["blk.0.ffn_norm.weight"] = {{32}};
    tensors["blk.0.attn_q.weight"] = {{32, 32}};
    tensors["blk.0.attn_k.weight"] = {{32, 16}};
    tensors["blk.0.attn_v.weight"] = {{32, 16}};
    tensors["blk.0.attn_output.weight"] = {{32, 32}};
    tensors["blk.0.ffn_gate.weight"] = {{32, 48}};
    tensors["blk.0.ffn_up.weight"] = {{32, 48}};
    tensors["blk.0.ffn_down.weight"] = {{48, 32}};
  }

  // The vocabulary: 3 special tokens, the 256 bytes, and `others`, of one type.
  void SetTokens(const std::vector<std::string>& others, int32_t type) {
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", byte);
      tokens.push_back(name);
      types.push_back(6);
    }
    tokens.insert(tokens.end(), others.begin(), others.end());
    types.resize(tokens.size(), type);
    Set("tokenizer.ggml.tokens", tokens);
    Set("tokenizer.ggml.token_type", types);
    Set("tokenizer.ggml.scores", std::vector<float>(tokens.size(), 0.0f));
    tensors["token_embd.weight"] = {{32, tokens.size()}};
  }

  void Write(const std::string& path) const {
    GgufBuilder builder;
    for (const auto& [key, write] : keys) write(builder, key);
    for (const auto& [name, spec] : tensors) {
      uint64_t count = 1;
      for (uint64_t dim : spec.dims) count *= dim;
      std::vector<float> values(count);
      for (uint64_t i = 0; i < count; ++i) values[i] = fill(name, i);
      if (spec.value != 0.5f) values[count / 2] = spec.value;
      builder.AddTensor(name, kGgmlF32, spec.dims, Bytes(values));
    }
    std::ofstream(path, std::ios::binary) << builder.Build();
  }

  absl::StatusOr<std::unique_ptr<Model>> Load(ModelOptions options = {.kv_bytes = 1 << 20}) const {
    const std::string path = testing::TempDir() + "/small_model_" +
                             testing::UnitTest::GetInstance()->current_test_info()->name() +
                             ".gguf";
    Write(path);
    auto model = Model::Load(path, options);
    std::filesystem::remove(path);
    return model;
  }

  std::map<std::string, WriteKey> keys;
  std::map<std::string, TensorSpec> tensors;
  // The i-th value of a tensor.
  std::function<float(const std::string& name, uint64_t i)> fill = [](const std::string&,
                                                                      uint64_t) { return 0.5f; };
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_MODEL_SMALL_MODEL_H_
