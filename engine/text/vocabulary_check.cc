#include "engine/text/vocabulary_check.h"

#include <cmath>
#include <cstdint>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/text/special_tokens.h"
#include "engine/text/token_index.h"

namespace lm {
namespace {

constexpr size_t kMaxNameBytes = 4096;

absl::Status CheckId(absl::string_view key, int64_t id, size_t tokens) {
  if (id >= -1 && id < static_cast<int64_t>(tokens)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.ggml.", key, " is ", id, ", the vocabulary has ", tokens, " tokens"));
}

absl::Status CheckSize(absl::string_view key, size_t size, size_t tokens) {
  if (size == tokens) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("tokenizer.ggml.", key, " has ", size, " entries for ", tokens, " tokens"));
}

bool IsByteName(absl::string_view name) {
  return name.size() == 6 && name.substr(0, 3) == "<0x" && absl::ascii_isxdigit(name[3]) &&
         absl::ascii_isxdigit(name[4]) && name[5] == '>';
}

absl::Status CheckToken(const Vocabulary& vocabulary, size_t i) {
  const absl::string_view name = vocabulary.tokens[i];
  const TokenType type = vocabulary.types[i];
  auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.tokens[", i, "] ", QuoteName(name), " ", why));
  };
  if (type < TokenType::kNormal || type > TokenType::kByte) {
    return refuse(absl::StrCat("has type ", static_cast<int>(type), ", wanted 1 to 6"));
  }
  const bool special =
      type == TokenType::kControl || type == TokenType::kUnknown || type == TokenType::kUserDefined;
  const size_t limit = special ? SpecialTokens::kMaxBytes : kMaxNameBytes;
  if (name.size() > limit) {
    return refuse(absl::StrCat("is ", name.size(), " bytes long, at most ", limit, " are allowed"));
  }
  if (ValidUtf8Prefix(name) != name.size()) return refuse("is not valid UTF-8");
  if (type == TokenType::kByte && !IsByteName(name)) {
    return refuse("is a byte token, wanted a name like \"<0x0A>\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckVocabulary(const Vocabulary& vocabulary) {
  const size_t tokens = vocabulary.tokens.size();
  if (tokens == 0 || tokens > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.ggml.tokens has ", tokens, " entries, wanted 1 to 2147483647"));
  }
  RETURN_IF_ERROR(CheckSize("token_type", vocabulary.types.size(), tokens));
  for (size_t i = 0; i < tokens; ++i) RETURN_IF_ERROR(CheckToken(vocabulary, i));

  RETURN_IF_ERROR(CheckId("bos_token_id", vocabulary.bos, tokens));
  RETURN_IF_ERROR(CheckId("eos_token_id", vocabulary.eos, tokens));
  RETURN_IF_ERROR(CheckId("eot_token_id", vocabulary.eot, tokens));
  RETURN_IF_ERROR(CheckId("eom_token_id", vocabulary.eom, tokens));
  RETURN_IF_ERROR(CheckId("unknown_token_id", vocabulary.unknown, tokens));
  RETURN_IF_ERROR(CheckId("padding_token_id", vocabulary.padding, tokens));
  RETURN_IF_ERROR(CheckId("seperator_token_id", vocabulary.separator, tokens));
  for (int32_t id : vocabulary.more_eos) RETURN_IF_ERROR(CheckId("eos_token_ids", id, tokens));
  for (const std::vector<int32_t>* ids : {&vocabulary.strip_before, &vocabulary.strip_after}) {
    for (int32_t id : *ids) {
      if (id < 0) return absl::InvalidArgumentError("a token that strips whitespace has id -1");
      RETURN_IF_ERROR(CheckId("tokens: one that strips whitespace", id, tokens));
    }
  }
  if (vocabulary.add_bos && vocabulary.bos < 0) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_bos_token is true, but there is no tokenizer.ggml.bos_token_id");
  }
  if (vocabulary.model == "bert" && vocabulary.separator < 0) {
    return absl::InvalidArgumentError("there is no tokenizer.ggml.seperator_token_id");
  }
  if (vocabulary.add_eos && vocabulary.eos < 0) {
    return absl::InvalidArgumentError(
        "tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id");
  }

  if (vocabulary.model == "llama" || vocabulary.model == "t5" || vocabulary.model == "plamo2") {
    RETURN_IF_ERROR(CheckSize("scores", vocabulary.scores.size(), tokens));
    for (size_t i = 0; i < tokens; ++i) {
      if (!std::isfinite(vocabulary.scores[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat("tokenizer.ggml.scores[", i, "] is ", vocabulary.scores[i]));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace lm
