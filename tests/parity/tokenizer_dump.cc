// Writes the ids that our tokenizer gives to many texts; one half of tests/parity/tokenizer.py.
//
//   tokenizer_dump MODEL TEXTS IDS
//
// TEXTS is a sequence of records: one byte, 'p' for plain text or 'm' for markup, four bytes of
// length (little-endian), the text. IDS gets one line a record: the ids with spaces between them,
// without BOS.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "engine/hf/hf_directory.h"
#include "engine/model/load_vocabulary.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

absl::Status Dump(const std::string& model, const std::string& texts, const std::string& out) {
  absl::StatusOr<std::unique_ptr<GgufFile>> gguf = OpenModelFile(model);
  if (!gguf.ok()) return gguf.status();
  absl::StatusOr<Vocabulary> vocabulary = LoadVocabulary((*gguf)->metadata());
  if (!vocabulary.ok()) return vocabulary.status();
  absl::StatusOr<std::unique_ptr<Tokenizer>> tokenizer = Tokenizer::Create(*std::move(vocabulary));
  if (!tokenizer.ok()) return tokenizer.status();

  std::ifstream input(texts, std::ios::binary);
  std::string records((std::istreambuf_iterator<char>(input)), std::istreambuf_iterator<char>());
  std::ofstream output(out, std::ios::binary);
  for (size_t pos = 0; pos + 5 <= records.size();) {
    const TextKind kind = records[pos] == 'm' ? TextKind::kMarkup : TextKind::kPlain;
    uint32_t size;
    std::memcpy(&size, records.data() + pos + 1, sizeof(size));
    const TextPiece piece = {records.substr(pos + 5, size), kind};
    pos += 5 + size;
    std::vector<int32_t> ids;
    absl::Status status = (*tokenizer)->Encode(absl::MakeConstSpan(&piece, 1), &ids);
    if (!status.ok()) return status;
    output << absl::StrJoin(ids, " ") << "\n";
  }
  return output.flush() ? absl::OkStatus() : absl::UnknownError("cannot write " + out);
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: tokenizer_dump MODEL.gguf TEXTS IDS\n";
    return 2;
  }
  absl::Status status = lm::Dump(argv[1], argv[2], argv[3]);
  if (status.ok()) return 0;
  std::cerr << status << "\n";
  return 1;
}
