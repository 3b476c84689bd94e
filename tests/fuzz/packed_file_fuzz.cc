// Files of the pack cache: any bytes are refused with a message that can be shown, or give the
// matrices that were written.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "engine/model/packed_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

const PackedSource& Source() {
  static const auto& source = *new PackedSource{"/models/a.gguf", "contents", "layout", "digest"};
  return source;
}

// The bytes of the two matrices.
std::string MatrixOf(const std::string& name) {
  return std::string(name == "a" ? 5000 : 64, name[0]);
}

// A folder of this process, in memory where there is such a place; gone when it ends.
struct Folder {
  Folder() {
    const char* root = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : "/tmp";
    path = std::string(root) + "/packed_file_fuzz_" + std::to_string(getpid());
    std::filesystem::create_directories(path);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

std::string PathOf(const std::string& name) {
  static const Folder folder;
  return folder.path + "/" + name;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  const std::string path = PathOf("seed");
  auto writer = PackedFileWriter::Create(path);
  Require(writer.ok(), "a folder that can be written to");
  for (const char* name : {"a", "b"}) (*writer)->Add(name, MatrixOf(name));
  Require((*writer)->Finish(Source()).ok(), "a file is written");
  std::ifstream file(path, std::ios::binary);
  return {std::string{std::istreambuf_iterator<char>(file), {}}};
}

std::vector<std::string> FuzzWords() { return {}; }

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = lm::PathOf("input");
  unlink(path.c_str());
  {
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  }
  lm::PackedFile::SourceOf(path);
  const auto packed = lm::PackedFile::Open(path, lm::Source(), /*num_threads=*/1);
  if (!packed.ok()) {
    lm::RequireShowable(packed.status());
    return 0;
  }
  if (absl::Status status = (*packed)->Check(); !status.ok()) {
    lm::RequireShowable(status);
    return 0;
  }
  for (const char* name : {"a", "b"}) {
    const auto matrix = lm::PackedFile::Find(*packed, name);
    if (!matrix.has_value()) continue;
    const auto chars = matrix->chars();
    lm::Require(std::string(chars.data(), chars.size()) == lm::MatrixOf(name),
                "a matrix that passes its check is the one that was written");
  }
  return 0;
}
