// Models of tests/testdata/models, and what llama.cpp gave for them.
#ifndef LM_TESTS_ENGINE_MODEL_GOLDEN_FILE_H_
#define LM_TESTS_ENGINE_MODEL_GOLDEN_FILE_H_

#include <algorithm>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tests/testdata.h"

namespace lm {

inline std::string ModelPath(absl::string_view name, absl::string_view extension) {
  return absl::StrCat(LM_TESTDATA, "/models/", name, extension);
}

inline std::vector<float> ReadFloats(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<float> values(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), values.size() * sizeof(float), reinterpret_cast<char*>(values.data()));
  return values;
}

// Of a model on a device, for a test's name.
inline std::string ModelAndDevice(absl::string_view model, absl::string_view device) {
  std::string name = absl::StrCat(model, "_", device);
  for (char& c : name) {
    if (!absl::ascii_isalnum(c)) c = '_';
  }
  return name;
}

}  // namespace lm

#endif  // LM_TESTS_ENGINE_MODEL_GOLDEN_FILE_H_
