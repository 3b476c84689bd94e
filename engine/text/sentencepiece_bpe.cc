#include "engine/text/sentencepiece_bpe.h"

#include <algorithm>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/piece_cache.h"
#include "engine/text/split_family.h"
#include "engine/text/unicode_characters.h"
#include "engine/text/unicode_words.h"

namespace lm {
namespace {

constexpr absl::string_view kSpace = "\xe2\x96\x81";
constexpr uint32_t kSpaceCodePoint = 0x2581;

uint64_t Joint(uint32_t first, uint32_t second) { return uint64_t{first} << 32 | second; }

// Unicode's White_Space.
bool IsWhiteSpace(uint32_t c) { return IsUnicodeSpace(c) && (c < 0x1c || c > 0x1f); }

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
  model->by_rank_ = vocabulary.model != "llama";
  if (model->by_rank_) {
    ASSIGN_OR_RETURN(const SplitFamily family, FindSplitFamily(vocabulary.pre));
    model->whole_breaks_ = family.whole_pieces_first;
    model->drops_spaces_ = family.drops_spaces;
    ASSIGN_OR_RETURN(model->merges_, MergeTable::Read(vocabulary, index));
  }
  RETURN_IF_ERROR(model->ReadByteIds());
  model->FindJoints();
  return model;
}

absl::Status SentencePieceBpe::ReadByteIds() {
  for (int byte = 0; byte < 256; ++byte) {
    const std::string name = absl::StrCat(
        "<0x", absl::AsciiStrToUpper(absl::StrCat(absl::Hex(byte, absl::kZeroPad2))), ">");
    int32_t id = index_.Find(name);
    if (id >= 0 && vocabulary_.types[id] != TokenType::kByte) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tokenizer.ggml.token_type[", id, "] is ", static_cast<int>(vocabulary_.types[id]),
          " for \"", name, "\", wanted ", static_cast<int>(TokenType::kByte), " (byte)"));
    }
    if (id < 0 && !drops_spaces_) {
      const char self = static_cast<char>(byte);
      id = index_.FindPlain(absl::string_view(&self, 1));
    }
    if (id < 0 && IsUtf8Byte(byte) && !drops_spaces_) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens: there is no token \"", name, "\" for that byte"));
    }
    byte_ids_[byte] = id;
  }
  return absl::OkStatus();
}

void SentencePieceBpe::FindJoints() {
  for (const std::string& name : vocabulary_.tokens) {
    if (index_.FindPlain(name) < 0) continue;
    longest_ = std::max(longest_, name.size());
    size_t pos = 0;
    uint32_t previous = DecodeUtf8(name, &pos);
    while (pos < name.size()) {
      const uint32_t c = DecodeUtf8(name, &pos);
      if (!by_rank_ || (previous == '\n') == (c == '\n')) joints_.Insert(Joint(previous, c));
      previous = c;
    }
  }
  // A run of line breaks is looked up whole.
  if (whole_breaks_) joints_.Insert(Joint('\n', '\n'));
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
  const bool has_space = absl::StartsWith(text, " ") || absl::StartsWith(text, kSpace);
  const bool lacks_space = vocabulary_.space_prefix == SpacePrefix::kEach || !has_space;
  if (begins && vocabulary_.add_space_prefix && !text.empty() && lacks_space) {
    add(kSpaceCodePoint, kSpace);
  }
  uint32_t characters = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (++characters % 4096 == 0) RETURN_IF_ERROR(Checkpoint());
    const size_t begin = pos;
    const uint32_t c = DecodeUtf8(text, &pos);
    if (drops_spaces_) {
      if (!IsWhiteSpace(c)) {
        const uint32_t kept = vocabulary_.lower_case ? LowerOf(c) : c;
        std::string bytes;
        AppendUtf8(kept, &bytes);
        add(kept, bytes);
      } else if (!symbols.empty()) {
        EncodeChunk(&chunk, ids);
      }
    } else if (c == ' ') {
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
  const bool breaks = whole_breaks_ && text[0] == '\n' && text.size() <= longest_;
  if (const int32_t id = breaks ? index_.FindPlain(text) : -1; id >= 0) {
    ids->push_back(id);
    return;
  }
  if (by_rank_) {
    for (Symbol& symbol : symbols) {
      symbol.id = index_.FindPlain(text.substr(symbol.begin, symbol.size));
    }
  }
  chunk->merger.Run([&](const Symbol& left, const Symbol& right, Merge* merge) {
    if (by_rank_) return merges_.Find(left.id, right.id, merge);
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
    for (char byte : piece) {
      const int32_t of_byte = byte_ids_[static_cast<uint8_t>(byte)];
      if (of_byte >= 0) ids->push_back(of_byte);
    }
  }
}

std::string SentencePieceBpe::DecodeName(absl::string_view name) const {
  return absl::StrReplaceAll(name, {{kSpace, " "}});
}

}  // namespace lm
