#include "engine/text/word_piece.h"

#include "absl/strings/str_replace.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/unicode_words.h"

namespace lm {
namespace {

constexpr absl::string_view kBegin = "\xe2\x96\x81";
constexpr size_t kCheckpointBytes = 16384;

}  // namespace

absl::StatusOr<std::unique_ptr<WordPiece>> WordPiece::Create(const Vocabulary& vocabulary,
                                                             const TokenIndex& index) {
  if (vocabulary.unknown < 0) {
    return absl::InvalidArgumentError("there is no tokenizer.ggml.unknown_token_id");
  }
  auto model = std::unique_ptr<WordPiece>(new WordPiece(vocabulary));
  std::vector<std::pair<absl::string_view, int32_t>> names;
  for (const std::string& name : vocabulary.tokens) {
    const int32_t id = index.FindPlain(name);
    if (id >= 0) names.emplace_back(name, id);
  }
  model->names_.Build(std::move(names));
  return model;
}

absl::Status WordPiece::Encode(absl::string_view text, bool, std::vector<int32_t>* ids) const {
  std::string word(kBegin);
  auto end_word = [&] {
    if (word.size() == kBegin.size()) return absl::OkStatus();
    RETURN_IF_ERROR(EncodeWord(word, ids));
    word.resize(kBegin.size());
    return absl::OkStatus();
  };
  size_t next_checkpoint = kCheckpointBytes;
  for (size_t pos = 0; pos < text.size();) {
    if (pos >= next_checkpoint) {
      RETURN_IF_ERROR(Checkpoint());
      next_checkpoint = pos + kCheckpointBytes;
    }
    uint32_t c = DecodeUtf8(text, &pos);
    if (vocabulary_.strip_accents) c = BaseOf(c);
    const WordRole role = RoleInWords(c);
    if (role == WordRole::kDropped) continue;
    if (role == WordRole::kMark && vocabulary_.strip_accents) continue;
    if (role == WordRole::kSpace || role == WordRole::kAlone) RETURN_IF_ERROR(end_word());
    if (role == WordRole::kSpace) continue;
    AppendUtf8(vocabulary_.lower_case ? LowerOf(c) : c, &word);
    if (role == WordRole::kAlone) RETURN_IF_ERROR(end_word());
  }
  return end_word();
}

absl::Status WordPiece::EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const {
  const size_t begin = ids->size();
  size_t next_checkpoint = kCheckpointBytes;
  for (size_t pos = 0; pos < word.size();) {
    if (pos >= next_checkpoint) {
      RETURN_IF_ERROR(Checkpoint());
      next_checkpoint = pos + kCheckpointBytes;
    }
    int32_t longest = -1;
    size_t end = pos;
    int32_t node = NameTrie::kRoot;
    for (size_t i = pos; i < word.size(); ++i) {
      node = names_.Next(node, word[i]);
      if (node < 0) break;
      if (names_.IdAt(node) < 0) continue;
      longest = names_.IdAt(node);
      end = i + 1;
    }
    if (longest < 0) {
      ids->resize(begin);
      ids->push_back(vocabulary_.unknown);
      return absl::OkStatus();
    }
    ids->push_back(longest);
    pos = end;
  }
  return absl::OkStatus();
}

std::string WordPiece::DecodeName(absl::string_view name) const {
  return absl::StrReplaceAll(name, {{kBegin, " "}});
}

}  // namespace lm
