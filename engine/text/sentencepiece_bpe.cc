#include "engine/text/sentencepiece_bpe.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/piece_cache.h"

namespace lm {
namespace {

constexpr absl::string_view kSpace = "\xe2\x96\x81";
constexpr uint32_t kSpaceCodePoint = 0x2581;

uint64_t Joint(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

bool IsUtf8Byte(int byte) { return byte != 0xc0 && byte != 0xc1 && byte <= 0xf4; }

// Scores in descending order as unsigned integers in ascending order.
uint32_t PriorityOf(float score) {
  score += 0.0f;  // -0 and 0 are equals
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof(bits));
  const uint32_t ascending = (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
  return ~ascending;
}

}  // namespace

// A stretch of text between two places where nothing merges.
struct SentencePieceBpe::Chunk {
  explicit Chunk(size_t text_bytes) : known(text_bytes) {}

  std::string text;
  SymbolMerger merger;
  PieceCache known;
};

absl::StatusOr<std::unique_ptr<SentencePieceBpe>> SentencePieceBpe::Create(
    const Vocabulary& vocabulary, const TokenIndex& index) {
  auto model = std::unique_ptr<SentencePieceBpe>(new SentencePieceBpe(vocabulary, index));
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = absl::StrCat(
        "<0x", absl::AsciiStrToUpper(absl::StrCat(absl::Hex(byte, absl::kZeroPad2))), ">");
    int32_t id = index.Find(name);
    if (id >= 0 && vocabulary.types[id] != TokenType::kByte) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.token_type[", id, "] is ", static_cast<int>(vocabulary.types[id]),
          " for \"", name, "\", wanted ", static_cast<int>(TokenType::kByte), " (byte)"));
    }
    if (id < 0) {
      const char self = static_cast<char>(byte);
      id = index.FindPlain(absl::string_view(&self, 1));
    }
    if (id < 0 && IsUtf8Byte(byte)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens: there is no token \"", name, "\" for that byte"));
    }
    model->byte_ids_[byte] = id;
  }
  for (const std::string& name : vocabulary.tokens) {
    if (index.FindPlain(name) < 0) continue;
    model->longest_ = std::max(model->longest_, name.size());
    size_t pos = 0;
    uint32_t previous = DecodeUtf8(name, &pos);
    while (pos < name.size()) {
      const uint32_t c = DecodeUtf8(name, &pos);
      model->joints_.Insert(Joint(previous, c));
      previous = c;
    }
  }
  return model;
}

absl::Status SentencePieceBpe::Encode(absl::string_view text, bool begins,
                                      std::vector<int32_t>* ids) const {
  Chunk chunk(text.size());
  GrowingArray<Symbol>& symbols = chunk.merger.symbols();
  uint32_t previous = 0;
  auto add = [&](uint32_t c, absl::string_view bytes) {
    if (!symbols.empty() && !joints_.Contains(Joint(previous, c))) EncodeChunk(&chunk, ids);
    symbols.push_back({static_cast<uint32_t>(chunk.text.size()),
                       static_cast<uint32_t>(bytes.size()), -1, -1, -1});
    chunk.text.append(bytes.data(), bytes.size());
    previous = c;
  };
  if (begins && vocabulary_.add_space_prefix && !text.empty()) add(kSpaceCodePoint, kSpace);
  uint32_t characters = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (++characters % 4096 == 0) RETURN_IF_ERROR(Checkpoint());
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(text, &pos);
    if (c == ' ') {
      add(kSpaceCodePoint, kSpace);
    } else {
      add(c, text.substr(begin, pos - begin));
    }
  }
  if (!symbols.empty()) EncodeChunk(&chunk, ids);
  return absl::OkStatus();
}

// Appends the chunk's tokens, and empties it.
void SentencePieceBpe::EncodeChunk(Chunk* chunk, std::vector<int32_t>* ids) const {
  if (!chunk->known.Append(chunk->text, ids)) {
    const size_t begin = ids->size();
    MergeChunk(chunk, ids);
    chunk->known.Add(chunk->text, absl::MakeConstSpan(*ids).subspan(begin));
  }
  chunk->merger.symbols().clear();
  chunk->text.clear();
}

void SentencePieceBpe::MergeChunk(Chunk* chunk, std::vector<int32_t>* ids) const {
  const absl::string_view text = chunk->text;
  GrowingArray<Symbol>& symbols = chunk->merger.symbols();
  chunk->merger.Run([&](const Symbol& left, const Symbol& right, Merge* merge) {
    const size_t size = size_t{left.size} + right.size;
    if (size > longest_) return false;
    merge->id = index_.FindPlain(text.substr(left.begin, size));
    if (merge->id < 0) return false;
    merge->priority = PriorityOf(vocabulary_.scores[merge->id]);
    return true;
  });
  if (symbols.size() > 4096 && Interrupted()) return;
  uint32_t tokens = 0;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    if (++tokens % 4096 == 0 && Interrupted()) return;
    const absl::string_view piece = text.substr(symbols[i].begin, symbols[i].size);
    const int32_t id = symbols[i].id >= 0 ? symbols[i].id : index_.FindPlain(piece);
    if (id >= 0) {
      ids->push_back(id);
      continue;
    }
    for (char byte : piece) ids->push_back(byte_ids_[static_cast<uint8_t>(byte)]);
  }
}

std::string SentencePieceBpe::DecodeName(absl::string_view name) const {
  return absl::StrReplaceAll(name, {{kSpace, " "}});
}

}  // namespace lm
