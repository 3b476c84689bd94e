// A folder of a test's own, and safetensors files in it.
#ifndef LM_TESTS_ENGINE_HF_HF_FOLDER_H_
#define LM_TESTS_ENGINE_HF_HF_FOLDER_H_

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace lm {

class HfFolder {
 public:
  HfFolder()
      : path_(std::filesystem::path(::testing::TempDir()) / absl::StrCat("lm_hf_", getpid())) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~HfFolder() { std::filesystem::remove_all(path_); }

  std::string path() const { return path_; }

  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path_ / name, std::ios::binary) << bytes;
  }

  struct Tensor {
    std::string name, type, shape;  // "[2, 8]"
    std::string bytes;
  };
  void WriteTensors(const std::vector<Tensor>& tensors) const {
    std::string header, data;
    for (const Tensor& tensor : tensors) {
      absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", tensor.name, "\":{\"dtype\":\"",
                      tensor.type, "\",\"shape\":", tensor.shape, ",\"data_offsets\":[",
                      data.size(), ",", data.size() + tensor.bytes.size(), "]}");
      data += tensor.bytes;
    }
    header += "}";
    const uint64_t size = header.size();
    std::string length(sizeof(size), '\0');
    std::memcpy(length.data(), &size, sizeof(size));
    Write("model.safetensors", absl::StrCat(length, header, data));
  }

 private:
  const std::filesystem::path path_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_HF_HF_FOLDER_H_
