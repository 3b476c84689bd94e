#include "engine/text/tokenizer.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/answer_ends.h"
#include "engine/text/byte_level_bpe.h"
#include "engine/text/cheapest_tokens.h"
#include "engine/text/longest_token.h"
#include "engine/text/sentencepiece_bpe.h"
#include "engine/text/split_family.h"
#include "engine/text/unigram.h"
#include "engine/text/vocabulary_check.h"
#include "engine/text/word_piece.h"

namespace lm {
namespace {

// Appends a range, or lengthens the last where they touch.
void Extend(SpecialTokens::Range range, std::vector<SpecialTokens::Range>* ranges) {
  if (!ranges->empty() && ranges->back().end == range.begin) {
    ranges->back().end = range.end;
  } else {
    ranges->push_back(range);
  }
}

constexpr absl::string_view kTextModels[] = {"gpt2", "llama", "gemma4",     "bert",
                                             "t5",   "rwkv",  "whitespace", "plamo2"};

int HexDigit(char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; }

}  // namespace

bool IsKnownTextModel(absl::string_view name) {
  return std::find(std::begin(kTextModels), std::end(kTextModels), name) != std::end(kTextModels);
}

absl::Status UnknownTextModel(absl::string_view name) {
  auto quote = [](std::string* out, absl::string_view known) {
    absl::StrAppend(out, "\"", known, "\"");
  };
  return absl::UnimplementedError(
      absl::StrCat("tokenizer.ggml.model ", QuoteName(name),
                   " is not supported (known: ", absl::StrJoin(kTextModels, ", ", quote), ")"));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Create(Vocabulary vocabulary) {
  if (!IsKnownTextModel(vocabulary.model)) return UnknownTextModel(vocabulary.model);
  bool byte_level = false;
  if (vocabulary.model == "gpt2") {
    ASSIGN_OR_RETURN(const SplitFamily family, FindSplitFamily(vocabulary.pre));
    byte_level = !family.raw;
  }
  RETURN_IF_ERROR(CheckVocabulary(vocabulary));
  auto tokenizer = std::unique_ptr<Tokenizer>(new Tokenizer);
  Tokenizer& t = *tokenizer;
  t.vocabulary_ = std::move(vocabulary);
  RETURN_IF_ERROR(t.index_.Build(&t.vocabulary_));
  MarkConventionalControls(t.index_, &t.vocabulary_);
  t.answer_ends_ = FindAnswerEnds(t.index_, t.vocabulary_);
  for (int32_t id : t.answer_ends_) {
    const absl::string_view name = t.vocabulary_.tokens[id];
    if (name.size() > SpecialTokens::kMaxBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", id, " ", QuoteName(name), " ends answers but is too long"));
    }
  }
  if (byte_level) {
    ASSIGN_OR_RETURN(t.model_, ByteLevelBpe::Create(t.vocabulary_, t.index_));
  } else if (t.vocabulary_.model == "bert") {
    ASSIGN_OR_RETURN(t.model_, WordPiece::Create(t.vocabulary_, t.index_));
  } else if (t.vocabulary_.model == "t5") {
    ASSIGN_OR_RETURN(t.model_, Unigram::Create(t.vocabulary_, t.index_));
  } else if (t.vocabulary_.model == "rwkv") {
    ASSIGN_OR_RETURN(t.model_, LongestToken::Create(t.vocabulary_, t.index_));
  } else if (t.vocabulary_.model == "plamo2") {
    ASSIGN_OR_RETURN(t.model_, CheapestTokens::Create(t.vocabulary_, t.index_));
  } else {
    ASSIGN_OR_RETURN(t.model_, SentencePieceBpe::Create(t.vocabulary_, t.index_));
  }
  RETURN_IF_ERROR(t.LeaveOutSuppressed());
  t.vocabulary_.merges = {};
  t.vocabulary_.character_map = {};
  t.special_tokens_ = std::make_unique<SpecialTokens>(t.vocabulary_);
  t.byte_offsets_.reserve(t.vocabulary_.tokens.size() + 1);
  t.byte_offsets_.push_back(0);
  for (int32_t id = 0; id < t.size(); ++id) {
    t.bytes_ += t.BytesOf(id);
    t.byte_offsets_.push_back(t.bytes_.size());
  }
  return tokenizer;
}

absl::Status Tokenizer::LeaveOutSuppressed() {
  const std::vector<int32_t>& ids = vocabulary_.suppressed;
  if (std::none_of(ids.begin(), ids.end(), [this](int32_t id) { return Contains(id); })) {
    return absl::OkStatus();
  }
  sayable_.assign((size() + 63) / 64, ~uint64_t{0});
  if (size() % 64 != 0) sayable_.back() >>= 64 - size() % 64;
  for (int32_t id : ids) {
    if (Contains(id)) sayable_[id / 64] &= ~(uint64_t{1} << (id % 64));
  }
  if (std::any_of(sayable_.begin(), sayable_.end(), [](uint64_t word) { return word != 0; })) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.suppress_tokens has all ", size(),
                                                 " tokens, wanted one that may be said"));
}

std::string Tokenizer::BytesOf(int32_t id) const {
  const std::string& name = vocabulary_.tokens[id];
  switch (vocabulary_.types[id]) {
    case TokenType::kControl:
    case TokenType::kUnknown:
      return "";
    case TokenType::kUserDefined:
      return name;
    case TokenType::kByte:
      return std::string(1, static_cast<char>(HexDigit(name[3]) << 4 | HexDigit(name[4])));
    case TokenType::kNormal:
    case TokenType::kUnused:
      break;
  }
  return model_->DecodeName(name);
}

absl::Status Tokenizer::Encode(absl::Span<const TextPiece> pieces, std::vector<int32_t>* ids,
                               bool behind_bos) const {
  return EncodePieces(pieces, /*begins=*/!behind_bos || BeginsBehindSpecial(), ids);
}

absl::Status Tokenizer::EncodeInside(absl::string_view text, std::vector<int32_t>* ids,
                                     TextKind kind) const {
  const TextPiece piece = {std::string(text), kind};
  return EncodePieces(absl::MakeConstSpan(&piece, 1), /*begins=*/false, ids);
}

// `begins`: the text is a beginning, as TextModel::Encode has it.
absl::Status Tokenizer::EncodePieces(absl::Span<const TextPiece> pieces, bool begins,
                                     std::vector<int32_t>* ids) const {
  std::string joined;
  std::vector<SpecialTokens::Range> markup;
  std::vector<SpecialTokens::Range> open;
  for (const TextPiece& piece : pieces) {
    RETURN_IF_ERROR(Checkpoint());
    const size_t valid = ValidUtf8Prefix(piece.text);
    if (valid != piece.text.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("text is not valid UTF-8: the byte at offset ", valid));
    }
    const size_t begin = joined.size();
    if (piece.text.size() >= kMaxTextBytes - begin) {
      return absl::InvalidArgumentError(absl::StrCat("text has ", begin + piece.text.size(),
                                                     " bytes or more, fewer than ", kMaxTextBytes,
                                                     " can be encoded"));
    }
    joined += piece.text;
    if (piece.text.empty()) continue;
    const SpecialTokens::Range range = {begin, joined.size()};
    if (piece.kind == TextKind::kMarkup) Extend(range, &markup);
    if (piece.kind != TextKind::kInput) Extend(range, &open);
  }
  RETURN_IF_ERROR(Checkpoint());
  const absl::string_view text = joined;
  size_t pos = 0;
  const std::vector<SpecialTokens::Match> matches = special_tokens_->Find(text, markup, open);
  RETURN_IF_ERROR(Checkpoint());
  for (const SpecialTokens::Match& match : matches) {
    if (match.begin > pos) {
      RETURN_IF_ERROR(model_->Encode(text.substr(pos, match.begin - pos), begins, ids));
    }
    ids->push_back(match.id);
    pos = match.end;
    begins = BeginsBehindSpecial();
  }
  if (pos < text.size()) RETURN_IF_ERROR(model_->Encode(text.substr(pos), begins, ids));
  return Checkpoint();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodePlain(absl::string_view text) const {
  std::vector<int32_t> ids;
  if (vocabulary_.add_bos) ids.push_back(vocabulary_.bos);
  const TextPiece piece = {std::string(text), TextKind::kPlain};
  RETURN_IF_ERROR(Encode(absl::MakeConstSpan(&piece, 1), &ids));
  if (const int32_t last = LastToken(); last >= 0) ids.push_back(last);
  return ids;
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::EncodePair(absl::string_view first,
                                                           absl::string_view second) const {
  const TextPiece one = {std::string(first), TextKind::kInput};
  const TextPiece other = {std::string(second), TextKind::kInput};
  std::vector<int32_t> ids;
  if (!vocabulary_.rerank_template.empty()) {
    std::vector<TextPiece> pieces;
    for (absl::string_view rest = vocabulary_.rerank_template; !rest.empty();) {
      constexpr absl::string_view kFirst = "{query}", kSecond = "{document}";
      const size_t at = std::min(rest.find(kFirst), rest.find(kSecond));
      pieces.push_back({std::string(rest.substr(0, at)), TextKind::kMarkup});
      if (at == absl::string_view::npos) break;
      rest.remove_prefix(at);
      const bool is_first = rest.substr(0, kFirst.size()) == kFirst;
      pieces.push_back(is_first ? one : other);
      rest.remove_prefix(is_first ? kFirst.size() : kSecond.size());
    }
    RETURN_IF_ERROR(Encode(pieces, &ids));
    return ids;
  }
  auto end_text = [&](int32_t id) {
    if (id >= 0) ids.push_back(id);
  };
  if (vocabulary_.add_bos) ids.push_back(vocabulary_.bos);
  RETURN_IF_ERROR(Encode(absl::MakeConstSpan(&one, 1), &ids));
  end_text(LastToken());
  if (vocabulary_.add_separator) end_text(vocabulary_.separator);
  RETURN_IF_ERROR(Encode(absl::MakeConstSpan(&other, 1), &ids));
  end_text(LastToken());
  return ids;
}

std::string Tokenizer::DecodePlain(absl::Span<const int32_t> ids) const {
  const bool prefixed = PutsSpaceFirst();
  std::string text;
  bool begins = true;
  for (int32_t id : ids) {
    if (!Contains(id)) continue;
    absl::string_view bytes = TokenBytes(id);
    const TokenType type = vocabulary_.types[id];
    const bool special = type == TokenType::kUserDefined || IsControl(id);
    if (prefixed && begins && !special && !bytes.empty() && bytes[0] == ' ') bytes.remove_prefix(1);
    begins = special && (BeginsBehindSpecial() || (begins && IsControl(id)));
    text.append(bytes.data(), bytes.size());
  }
  return text;
}

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!Contains(id)) return {};
  return absl::string_view(bytes_).substr(byte_offsets_[id],
                                          byte_offsets_[id + 1] - byte_offsets_[id]);
}

absl::string_view Tokenizer::TokenName(int32_t id) const {
  return Contains(id) ? absl::string_view(vocabulary_.tokens[id]) : absl::string_view();
}

bool Tokenizer::IsControl(int32_t id) const {
  if (!Contains(id)) return false;
  const TokenType type = vocabulary_.types[id];
  return type == TokenType::kControl || type == TokenType::kUnknown;
}

bool Tokenizer::IsEndOfGeneration(int32_t id) const {
  return std::binary_search(answer_ends_.begin(), answer_ends_.end(), id);
}

}  // namespace lm
