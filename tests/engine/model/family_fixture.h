// A file's keys, for tests of what the families read from them.
#ifndef LM_TESTS_ENGINE_MODEL_FAMILY_FIXTURE_H_
#define LM_TESTS_ENGINE_MODEL_FAMILY_FIXTURE_H_

#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/gguf/metadata.h"
#include "engine/model/families.h"

namespace lm {

using Describe = absl::Status (*)(KeyReader& keys, ModelSpec* spec);

// A file's keys, of an architecture, that can be changed.
class FamilyTest : public testing::Test {
 protected:
  void Begin(const std::string& architecture, Describe describe) {
    architecture_ = architecture;
    describe_ = describe;
    keys_.clear();
    tensors_.clear();
    Set("block_count", uint64_t{12});
    Set("embedding_length", uint64_t{64});
    Set("feed_forward_length", uint64_t{96});
    Set("context_length", uint64_t{512});
    Set("attention.head_count", uint64_t{4});
    Set("attention.head_count_kv", uint64_t{2});
    Set("attention.layer_norm_rms_epsilon", 1e-6);
  }
  void Set(const std::string& name, MetadataValue value) { keys_[name] = std::move(value); }

  void Rename(const std::string& architecture) { architecture_ = architecture; }
  void Unset(const std::string& name) { keys_.erase(name); }
  // The file has such a tensor.
  void AddTensor(const std::string& name) { tensors_.insert(name); }

  ModelSpec Spec() {
    ModelSpec spec;
    const absl::Status status = Run(&spec);
    EXPECT_TRUE(status.ok()) << status;
    return spec;
  }
  std::string Refusal() {
    ModelSpec spec;
    return std::string(Run(&spec).message());
  }

 private:
  absl::Status Run(ModelSpec* spec) {
    Metadata metadata;
    for (const auto& [name, value] : keys_) metadata.Insert(architecture_ + "." + name, value);
    KeyReader keys(metadata, architecture_, [this](absl::string_view name) {
      return static_cast<int64_t>(tensors_.count(std::string(name)));
    });
    const absl::Status status = describe_(keys, spec);
    return status.ok() ? keys.CheckTheOthers() : status;
  }

  std::string architecture_;
  Describe describe_ = nullptr;
  std::map<std::string, MetadataValue> keys_;
  std::set<std::string> tensors_;
};

inline std::vector<int64_t> Windows(const ModelSpec& spec) {
  std::vector<int64_t> windows;
  for (const LayerSpec& layer : spec.layers) windows.push_back(layer.attention()->window);
  return windows;
}

}  // namespace lm

#endif  // LM_TESTS_ENGINE_MODEL_FAMILY_FIXTURE_H_
