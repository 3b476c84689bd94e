// lm_chunks(text [, max_tokens [, overlap [, options]]]): a long text in pieces for a model
//   -> n, chunk, start, tokens
//
//   SELECT n, chunk FROM lm_chunks(readfile('book.txt'));
//   SELECT article.id, piece.n, generate(piece.chunk, 'What is this passage about?')
//     FROM article, lm_chunks(article.body, 400) AS piece;
//   INSERT INTO passages SELECT article.id, n, lm_embed(chunk)         -- 200 tokens, of which
//     FROM article, lm_chunks(article.body, 200, 40);                  -- 40 of the one before
//
// A chunk has at most `max_tokens` tokens (256 unless given), counted as lm_token_count(chunk)
// counts them. It ends with a paragraph if that is not much shorter, else with a sentence or a
// line, else with a word; only a word longer than a chunk is cut, and no character ever is (one
// that has more tokens alone is a chunk nevertheless). White space stays with what it follows.
//
// Nothing is left out: with overlap 0 (the default) group_concat(chunk, '') is the text. With
// `overlap`, a chunk repeats about that many tokens of the one before, from the beginning of a
// sentence or word, or of a character, where no word begins there. n counts from 1; start is the
// chunk's first character, as substr() counts:
//   substr(text, start, length(chunk)) = chunk
//
// options names the model whose tokens are meant: {"model":"qwen"}. Of one on a server, whose
// tokenizer is not here, that is asked; where it does not tell, a chunk has at most max_tokens
// bytes, and its tokens are NULL. A NULL text and '' give no rows.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/runtime/generator_sizes.h"
#include "engine/text/text_chunks.h"
#include "extension/binding/table_function.h"
#include "extension/connection/call_options.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

constexpr int32_t kDefaultTokens = 256;
constexpr int64_t kMostTokens = 1 << 24;

int64_t CountCharacters(absl::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

absl::StatusOr<int32_t> ReadLimit(const TableArguments& args, int i, const char* name,
                                  int32_t otherwise, int64_t least, int64_t most) {
  ASSIGN_OR_RETURN(std::optional<int64_t> value, args.Integer(i));
  if (!value.has_value()) return otherwise;
  if (*value < least || *value > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " must be from ", least, " to ", most, ", got ", *value));
  }
  return static_cast<int32_t>(*value);
}

class ChunksCursor : public TableCursor {
 public:
  enum Column { kN, kChunk, kStart, kTokens };

  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    text_.clear();
    chunk_ = TextChunk();
    n_ = 0;
    start_ = 1;
    ASSIGN_OR_RETURN(std::optional<std::string> text, args.Text(0));
    ASSIGN_OR_RETURN(limits_.tokens,
                     ReadLimit(args, 1, "max_tokens", kDefaultTokens, 1, kMostTokens));
    ASSIGN_OR_RETURN(limits_.overlap, ReadLimit(args, 2, "overlap", 0, 0, limits_.tokens - 1));
    ASSIGN_OR_RETURN(std::optional<std::string> options, args.Text(3));
    RETURN_IF_ERROR(CheckNoneOfAnswers(options));
    if (!text.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(options_, ReadCallOptions(options, connection()));
    sizes_.emplace(options_.generator());
    text_ = *std::move(text);
    return Next();
  }

  bool AtEnd() const override { return chunk_.begin == text_.size(); }

  absl::Status Next() override {
    const TextChunk last = chunk_;
    if (last.end == text_.size()) {
      chunk_.begin = text_.size();
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(chunk_, NextChunk(*sizes_, text_, last, limits_));
    const absl::string_view text = text_;
    start_ += CountCharacters(text.substr(last.begin, chunk_.begin - last.begin));
    ++n_;
    return absl::OkStatus();
  }

  absl::Status Value(int column, sqlite3_context* context) override {
    switch (column) {
      case kN:
        sqlite3_result_int64(context, n_);
        break;
      case kChunk:
        ResultText(context, chunk_.Of(text_));
        break;
      case kStart:
        sqlite3_result_int64(context, start_);
        break;
      case kTokens:
        if (sizes_->counts()) sqlite3_result_int(context, chunk_.tokens);
        break;
    }
    return absl::OkStatus();
  }

  int64_t rowid() const override { return n_; }

 private:
  std::string text_;
  ChunkLimits limits_;
  CallOptions options_;
  std::optional<GeneratorSizes> sizes_;  // of their model
  TextChunk chunk_;                      // AtEnd: empty, at the text's end
  int64_t n_ = 0;      // of the chunk
  int64_t start_ = 1;  // its first character
};

constexpr TableFunctionSpec kChunksSpec = {
    .name = "lm_chunks",
    .columns = "n INTEGER, chunk TEXT, start INTEGER, tokens INTEGER",
    .num_columns = 4,
    .arguments = {"text", "max_tokens", "overlap", "options"},
    .missing = "a text is missing: lm_chunks(text)",
    .open = &MakeCursor<ChunksCursor>,
};

}  // namespace

int RegisterChunks(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kChunksSpec);
}

}  // namespace lm
