// Files of the prefix store: any bytes are refused with a message that can be shown, or give what
// was written. An input that begins with a brace is a description, to which the digest is made that
// lets it be read: then what is taken must lie within the file.
#include "engine/cache/prefix_file.h"

#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/digest.h"
#include "tests/fuzz/fuzz_folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

constexpr size_t kHeadBytes = 48;  // a sign of 16, two sizes of 8, a digest of 16

const FuzzFolder& Folder() {
  static const FuzzFolder folder("prefix_file_fuzz");
  return folder;
}

const PrefixDescription& Written() {
  static const auto& description = *new PrefixDescription{.model = "a model",
                                                          .owner = "file:/a.db",
                                                          .adapters = "one*0.5",
                                                          .begin = 2,
                                                          .tokens = {5, 6, 7, 31999}};
  return description;
}
const std::vector<std::string>& Pieces() {
  static const auto& pieces = *new std::vector<std::string>{std::string(300, 'a'), "", "state"};
  return pieces;
}

const std::string& WholeFile() {
  static const auto& bytes = *new std::string([] {
    std::vector<absl::Span<const char>> pieces(Pieces().begin(), Pieces().end());
    Require(WritePrefixFile(Folder().PathOf("seed"), Written(), pieces).ok(), "a file is written");
    return Folder().Read("seed");
  }());
  return bytes;
}
uint64_t NumberAt(size_t at) {
  uint64_t number;
  std::memcpy(&number, WholeFile().data() + at, sizeof(number));
  return number;
}
std::string WrittenDescription() { return WholeFile().substr(kHeadBytes, NumberAt(16)); }

// The file with another description, as if it had been written so.
std::string Around(const std::string& description) {
  const uint64_t bytes = description.size();
  const Digest digest = DigestOf(description);
  std::string head = WholeFile().substr(0, kHeadBytes);
  std::memcpy(head.data() + 16, &bytes, sizeof(bytes));
  std::memcpy(head.data() + 32, &digest, sizeof(digest));
  return head + description + WholeFile().substr(kHeadBytes + NumberAt(16));
}

bool IsAsWritten(const PrefixDescription& got) {
  const PrefixDescription& written = Written();
  return got.model == written.model && got.owner == written.owner &&
         got.adapters == written.adapters && got.begin == written.begin &&
         got.tokens == written.tokens;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  Require(Around(WrittenDescription()) == WholeFile(), "a file as this fuzzer thinks of it");
  return {WholeFile(), WrittenDescription()};
}

std::vector<std::string> FuzzWords() {
  return {"\"tokens\":", "\"sizes\":", "\"digests\":", "\"begin\":", "\"owner\":", "[", "]", "-1"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string input(reinterpret_cast<const char*>(data), size);
  const bool described = !input.empty() && input[0] == '{';
  const std::string bytes = described ? lm::Around(input) : input;
  const std::string path = lm::Folder().Write("input", bytes);
  const auto head = lm::ReadPrefixHead(path);
  if (!head.ok()) {
    lm::RequireShowable(head.status());
    return 0;
  }
  lm::Require(described || lm::IsAsWritten(head->description), "what was written is read");
  lm::Require(head->bytes == bytes.size(), "the file's size");
  lm::Require(head->description.begin >= 0 &&
                  head->description.begin <= std::ssize(head->description.tokens),
              "blocks of tokens that are there");
  for (const lm::PrefixPiece& piece : head->pieces) {
    lm::Require(piece.offset <= bytes.size() && piece.bytes <= bytes.size() - piece.offset,
                "pieces lie within the file");
    std::string got(piece.bytes, '\0');
    if (absl::Status status = lm::ReadPrefixPiece(path, piece, absl::MakeSpan(got)); !status.ok()) {
      lm::RequireShowable(status);
    } else {
      lm::Require(got == bytes.substr(piece.offset, piece.bytes), "a piece is the file's bytes");
      lm::Require(lm::DigestOf(got) == piece.digest, "and those of its digest");
    }
  }
  return 0;
}
