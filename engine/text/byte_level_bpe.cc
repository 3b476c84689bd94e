#include "engine/text/byte_level_bpe.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/piece_cache.h"
#include "engine/text/split_family.h"

namespace lm {
namespace {

// Pieces between two checkpoints.
constexpr size_t kCheckedPieces = 1024;
// Bytes of a long piece between two.
constexpr size_t kCheckedBytes = 1 << 14;

bool MustHaveToken(int byte) {
  return byte == '\t' || byte == '\n' || byte == '\r' || (byte >= 0x20 && byte <= 0x7e) ||
         (byte >= 0x80 && byte <= 0xbf);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteLevelBpe>> ByteLevelBpe::Create(const Vocabulary& vocabulary,
                                                                   const TokenIndex& index) {
  ASSIGN_OR_RETURN(SplitFamily family, FindSplitFamily(vocabulary.pre));
  auto model = std::unique_ptr<ByteLevelBpe>(new ByteLevelBpe(index));
  model->whole_pieces_first_ = family.whole_pieces_first;
  ASSIGN_OR_RETURN(model->splitter_, TextSplitter::Create(family.patterns));

  for (int byte = 0; byte < 256; ++byte) {
    model->byte_ids_[byte] = index.FindPlain(SpellByte(static_cast<uint8_t>(byte)));
    if (model->byte_ids_[byte] < 0 && MustHaveToken(byte)) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.tokens: there is no token for the byte 0x",
                       absl::Hex(byte, absl::kZeroPad2)));
    }
  }

  ASSIGN_OR_RETURN(model->merges_, MergeTable::Read(vocabulary, index));
  return model;
}

absl::Status ByteLevelBpe::Encode(absl::string_view text, bool /*begins*/,
                                  std::vector<int32_t>* ids) const {
  std::vector<TextSplitter::Piece> pieces;
  RETURN_IF_ERROR(splitter_->Split(text, &pieces));
  SymbolMerger merger;
  PieceCache known(text.size());
  size_t number = 0;
  for (const TextSplitter::Piece& place : pieces) {
    if (++number % kCheckedPieces == 0) RETURN_IF_ERROR(Checkpoint());
    const absl::string_view piece = text.substr(place.begin, place.end - place.begin);
    if (known.Append(piece, ids)) continue;
    const size_t begin = ids->size();
    EncodePiece(piece, &merger, ids);
    known.Add(piece, absl::MakeConstSpan(*ids).subspan(begin));
  }
  return absl::OkStatus();
}

void ByteLevelBpe::EncodePiece(absl::string_view piece, SymbolMerger* merger,
                               std::vector<int32_t>* ids) const {
  constexpr size_t kLongestWholePiece = 1024;
  if (whole_pieces_first_ && piece.size() <= kLongestWholePiece) {
    const int32_t id = index_.FindPlain(SpellBytes(piece));
    if (id >= 0) {
      ids->push_back(id);
      return;
    }
  }
  GrowingArray<Symbol>& symbols = merger->symbols();
  symbols.clear();
  for (size_t i = 0; i < piece.size(); ++i) {
    if (i % kCheckedBytes == kCheckedBytes - 1 && Interrupted()) return;
    symbols.push_back(
        {static_cast<uint32_t>(i), 1, -1, -1, byte_ids_[static_cast<uint8_t>(piece[i])]});
  }
  merger->Run([this](const Symbol& left, const Symbol& right, Merge* merge) {
    return merges_.Find(left.id, right.id, merge);
  });
  if (symbols.size() > kCheckedBytes && Interrupted()) return;
  uint32_t tokens = 0;
  for (int32_t i = 0; i >= 0; i = symbols[i].next) {
    if (++tokens % kCheckedBytes == 0 && Interrupted()) return;
    if (symbols[i].id >= 0) ids->push_back(symbols[i].id);
  }
}

std::string ByteLevelBpe::DecodeName(absl::string_view name) const { return UnspellBytes(name); }

}  // namespace lm
