// Files of the pack cache: any bytes are refused with a message that can be shown, or give the
// matrices that were written.
#include <memory>
#include <string>
#include <vector>

#include "engine/model/packed_file.h"
#include "tests/fuzz/fuzz_folder.h"
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

const FuzzFolder& Folder() {
  static const FuzzFolder folder("packed_file_fuzz");
  return folder;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  auto writer = PackedFileWriter::Create(Folder().PathOf("seed"));
  Require(writer.ok(), "a folder that can be written to");
  for (const char* name : {"a", "b"}) (*writer)->Add(name, MatrixOf(name));
  Require((*writer)->Finish(Source()).ok(), "a file is written");
  return {Folder().Read("seed")};
}

std::vector<std::string> FuzzWords() { return {}; }

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string path = lm::Folder().Write("input", {reinterpret_cast<const char*>(data), size});
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
