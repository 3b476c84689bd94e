#include "engine/model/load_vocabulary.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/text/split_family.h"
#include "engine/text/token_index.h"
#include "engine/text/tokenizer.h"

namespace lm {
namespace {

constexpr absl::string_view kPrefix = "tokenizer.ggml.";

std::string Key(absl::string_view name) { return absl::StrCat(kPrefix, name); }

// Sets *out if the key is there.
absl::Status ReadString(const Metadata& metadata, absl::string_view key, std::string* out) {
  if (!metadata.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(*out, metadata.GetString(key));
  return absl::OkStatus();
}

absl::Status ReadBool(const Metadata& metadata, absl::string_view name, bool* out) {
  if (!metadata.Has(Key(name))) return absl::OkStatus();
  ASSIGN_OR_RETURN(*out, metadata.GetBool(Key(name)));
  return absl::OkStatus();
}

// Some converters write whole numbers.
absl::Status ReadScores(const Metadata& metadata, std::vector<float>* scores) {
  const absl::StatusOr<std::vector<int64_t>> whole = metadata.GetInts(Key("scores"));
  if (whole.ok()) {
    scores->assign(whole->begin(), whole->end());
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(*scores, metadata.GetFloats(Key("scores")));
  return absl::OkStatus();
}

// Sets *id to the key's value if it is there. What lies outside the vocabulary is none: defaults,
// the -1 that some converters write for that, as a number of 32 unsigned bits, and the padding of
// models whose tables of embeddings were never padded. `needed`: but that is an error.
absl::Status ReadTokenId(const Metadata& metadata, absl::string_view name, size_t tokens,
                         int32_t* id, bool needed = false) {
  int64_t value = *id;
  if (metadata.Has(Key(name))) {
    ASSIGN_OR_RETURN(value, metadata.GetInt(Key(name)));
    const bool none = value == -1 || value == int64_t{UINT32_MAX};
    if (needed && !none && (value < 0 || static_cast<uint64_t>(value) >= tokens)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Key(name), " is ", value, ", the vocabulary has ", tokens, " tokens"));
    }
  }
  const bool inside = value >= 0 && static_cast<uint64_t>(value) < tokens;
  *id = inside ? static_cast<int32_t>(value) : -1;
  return absl::OkStatus();
}

absl::Status ReadTypes(const Metadata& metadata, Vocabulary* vocabulary) {
  vocabulary->types.assign(vocabulary->tokens.size(), TokenType::kNormal);
  if (!metadata.Has(Key("token_type"))) return absl::OkStatus();
  ASSIGN_OR_RETURN(std::vector<int64_t> types, metadata.GetInts(Key("token_type")));
  vocabulary->types.resize(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    // 0 is "undefined", and others nobody has defined: as llama.cpp, these are not special.
    const bool known = types[i] >= 1 && types[i] <= 6;
    vocabulary->types[i] = known ? static_cast<TokenType>(types[i]) : TokenType::kNormal;
  }
  return absl::OkStatus();
}

absl::Status ReadCharacterMap(const Metadata& metadata, Vocabulary* vocabulary) {
  if (!metadata.Has(Key("precompiled_charsmap"))) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> bytes, metadata.GetInts(Key("precompiled_charsmap")));
  for (int64_t byte : bytes) vocabulary->character_map.push_back(static_cast<char>(byte));
  return absl::OkStatus();
}

// Appends those that tokens have, if the key is there.
absl::Status ReadTokenIds(const Metadata& metadata, absl::string_view key,
                          const Vocabulary& vocabulary, std::vector<int32_t>* out) {
  if (!metadata.Has(key)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> ids, metadata.GetInts(key));
  for (int64_t id : ids) {
    if (id < 0 || static_cast<uint64_t>(id) >= vocabulary.tokens.size()) continue;
    out->push_back(static_cast<int32_t>(id));
  }
  return absl::OkStatus();
}

// Which markers swallow whitespace a directory says, in keys of ours. Files do not; it is known of
// a few models, by their names.
absl::Status ReadStripping(const Metadata& metadata, Vocabulary* vocabulary) {
  RETURN_IF_ERROR(ReadTokenIds(metadata, "sqlite_lm.tokenizer.strip_before", *vocabulary,
                               &vocabulary->strip_before));
  RETURN_IF_ERROR(ReadTokenIds(metadata, "sqlite_lm.tokenizer.strip_after", *vocabulary,
                               &vocabulary->strip_after));
  if (!vocabulary->strip_before.empty() || !vocabulary->strip_after.empty()) {
    return absl::OkStatus();
  }
  std::string name;
  RETURN_IF_ERROR(ReadString(metadata, "general.name", &name));
  absl::AsciiStrToLower(&name);
  const bool phi3 = absl::StrContains(name, "phi-3") || absl::StrContains(name, "phi3");
  const std::string masked = absl::StrContains(vocabulary->pre, "jina-v2-") ? "<mask>"
                             : absl::StrContains(name, "modern-bert")       ? "[MASK]"
                                                                            : "";
  if (!phi3 && masked.empty()) return absl::OkStatus();
  for (size_t i = 0; i < vocabulary->tokens.size() && i < vocabulary->types.size(); ++i) {
    const std::string& token = vocabulary->tokens[i];
    const TokenType type = vocabulary->types[i];
    const bool special = type == TokenType::kControl || type == TokenType::kUnknown ||
                         type == TokenType::kUserDefined;
    if (!masked.empty() && token == masked) {
      vocabulary->strip_before.push_back(static_cast<int32_t>(i));
    }
    if (phi3 && special && token != "<unk>" && token != "<s>" && token != "<|endoftext|>") {
      vocabulary->strip_after.push_back(static_cast<int32_t>(i));
    }
  }
  return absl::OkStatus();
}

// A directory's, in a key of ours: GGUF's add_space_prefix has no more than two values.
absl::Status ReadPrependScheme(const Metadata& metadata, Vocabulary* vocabulary) {
  std::string scheme;
  RETURN_IF_ERROR(ReadString(metadata, "sqlite_lm.tokenizer.prepend_scheme", &scheme));
  if (scheme == "always") vocabulary->space_prefix = SpacePrefix::kMissing;
  if (scheme == "first") vocabulary->space_prefix = SpacePrefix::kFirst;
  return absl::OkStatus();
}

// What is so of a text model unless the file says otherwise.
absl::Status SetDefaults(const Metadata& metadata, Vocabulary* vocabulary) {
  if (vocabulary->model == "llama") {
    vocabulary->bos = 1;
    vocabulary->eos = 2;
    vocabulary->unknown = 0;
    vocabulary->add_bos = true;
  } else if (vocabulary->model == "gemma4") {
    vocabulary->pre = "gemma4";
    vocabulary->add_space_prefix = false;
  } else if (vocabulary->model == "gpt2") {
    vocabulary->bos = 11;
    vocabulary->eos = 11;
    ASSIGN_OR_RETURN(SplitFamily family, FindSplitFamily(vocabulary->pre));
    vocabulary->add_bos = family.adds_bos;
    vocabulary->add_separator = family.adds_separator;
    vocabulary->add_space_prefix = false;
    vocabulary->lower_case = false;
  } else if (vocabulary->model == "whitespace") {
    vocabulary->bos = 11;
    vocabulary->eos = 11;
    vocabulary->pre = "whitespace";
    vocabulary->add_space_prefix = false;
    vocabulary->lower_case = false;
    RETURN_IF_ERROR(ReadBool(metadata, "normalizer.lowercase", &vocabulary->lower_case));
  } else if (vocabulary->model == "rwkv") {
    vocabulary->add_space_prefix = false;
  } else if (vocabulary->model == "plamo2") {
    vocabulary->bos = 1;
    vocabulary->eos = 2;
    vocabulary->unknown = 0;
    vocabulary->padding = 3;
    vocabulary->add_space_prefix = false;
  } else if (vocabulary->model == "bert") {
    vocabulary->bos = 101;
    vocabulary->unknown = 100;
    vocabulary->separator = 102;
    vocabulary->padding = 0;
    vocabulary->add_bos = true;
    vocabulary->add_space_prefix = false;
    RETURN_IF_ERROR(ReadBool(metadata, "normalizer.lowercase", &vocabulary->lower_case));
    vocabulary->strip_accents = vocabulary->lower_case;
    RETURN_IF_ERROR(ReadBool(metadata, "normalizer.strip_accents", &vocabulary->strip_accents));
  } else if (vocabulary->model == "t5") {
    vocabulary->eos = 1;
    vocabulary->unknown = 2;
    vocabulary->padding = 0;
    vocabulary->add_eos = true;
    vocabulary->add_space_prefix = false;
    RETURN_IF_ERROR(ReadBool(metadata, "add_space_prefix", &vocabulary->add_space_prefix));
    RETURN_IF_ERROR(ReadBool(metadata, "remove_extra_whitespaces", &vocabulary->merge_spaces));
    RETURN_IF_ERROR(ReadCharacterMap(metadata, vocabulary));
  } else {
    return UnknownTextModel(vocabulary->model);
  }
  return absl::OkStatus();
}

// The tokens, and what their model knows of each: scores, or merges.
absl::Status ReadTokens(const Metadata& metadata, Vocabulary* vocabulary) {
  ASSIGN_OR_RETURN(absl::Span<const std::string> tokens, metadata.GetStrings(Key("tokens")));
  vocabulary->tokens.assign(tokens.begin(), tokens.end());
  RETURN_IF_ERROR(ReadTypes(metadata, vocabulary));
  if (vocabulary->model == "llama") {
    RETURN_IF_ERROR(ReadScores(metadata, &vocabulary->scores));
    RETURN_IF_ERROR(ReadBool(metadata, "add_space_prefix", &vocabulary->add_space_prefix));
    RETURN_IF_ERROR(ReadPrependScheme(metadata, vocabulary));
  } else if (vocabulary->model == "t5" || vocabulary->model == "plamo2") {
    RETURN_IF_ERROR(ReadScores(metadata, &vocabulary->scores));
  } else if (vocabulary->model != "bert" && vocabulary->model != "rwkv") {
    ASSIGN_OR_RETURN(absl::Span<const std::string> merges, metadata.GetStrings(Key("merges")));
    vocabulary->merges.assign(merges.begin(), merges.end());
  }
  return absl::OkStatus();
}

// Which markers stand around each text.
absl::Status ReadAddedMarkers(const Metadata& metadata, Vocabulary* vocabulary) {
  RETURN_IF_ERROR(ReadBool(metadata, "add_bos_token", &vocabulary->add_bos));
  RETURN_IF_ERROR(ReadBool(metadata, "add_eos_token", &vocabulary->add_eos));
  RETURN_IF_ERROR(ReadBool(metadata, "add_sep_token", &vocabulary->add_separator));
  if (vocabulary->model == "bert") {  // whatever the file says: a separator ends each text
    vocabulary->add_bos = true;
    vocabulary->add_eos = vocabulary->add_separator = false;
  }
  if (vocabulary->model == "plamo2") {  // likewise
    vocabulary->add_bos = vocabulary->add_eos = false;
  }
  // Files say of Gemma 4 that it has none, and it cannot do without.
  if (vocabulary->pre == "gemma4" || vocabulary->pre == "granite-embed-multi-311m") {
    vocabulary->add_bos = true;
  }
  return absl::OkStatus();
}

absl::Status ReadMarkers(const Metadata& metadata, Vocabulary* vocabulary) {
  const size_t size = vocabulary->tokens.size();
  if (vocabulary->model == "bert") {  // files call it by either name
    RETURN_IF_ERROR(ReadTokenId(metadata, "cls_token_id", size, &vocabulary->bos));
  }
  RETURN_IF_ERROR(ReadTokenId(metadata, "seperator_token_id", size, &vocabulary->separator));
  const int32_t cls = vocabulary->bos;
  RETURN_IF_ERROR(ReadTokenId(metadata, "bos_token_id", size, &vocabulary->bos,
                              /*needed=*/vocabulary->add_bos));
  if (vocabulary->model == "bert" && vocabulary->bos < 0) vocabulary->bos = cls;
  RETURN_IF_ERROR(ReadTokenId(metadata, "eos_token_id", size, &vocabulary->eos,
                              /*needed=*/vocabulary->add_eos));
  vocabulary->states_bos = metadata.Has(Key("bos_token_id")) || metadata.Has(Key("cls_token_id"));
  vocabulary->states_eos = metadata.Has(Key("eos_token_id"));
  RETURN_IF_ERROR(ReadTokenIds(metadata, Key("eos_token_ids"), *vocabulary, &vocabulary->more_eos));
  // Fill-in-the-middle: after padding, or where another repository or file begins, nothing useful
  // comes.
  for (const char* name : {"fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id"}) {
    int32_t id = -1;
    RETURN_IF_ERROR(ReadTokenId(metadata, name, size, &id));
    if (id >= 0) vocabulary->more_eos.push_back(id);
  }
  RETURN_IF_ERROR(ReadTokenId(metadata, "eot_token_id", size, &vocabulary->eot));
  RETURN_IF_ERROR(ReadTokenId(metadata, "eom_token_id", size, &vocabulary->eom));
  RETURN_IF_ERROR(ReadTokenId(metadata, "unknown_token_id", size, &vocabulary->unknown));
  RETURN_IF_ERROR(ReadTokenId(metadata, "padding_token_id", size, &vocabulary->padding));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Vocabulary> LoadVocabulary(const Metadata& metadata) {
  Vocabulary vocabulary;
  ASSIGN_OR_RETURN(vocabulary.model, metadata.GetString(Key("model")));
  RETURN_IF_ERROR(ReadString(metadata, Key("pre"), &vocabulary.pre));
  RETURN_IF_ERROR(SetDefaults(metadata, &vocabulary));
  RETURN_IF_ERROR(ReadTokens(metadata, &vocabulary));
  RETURN_IF_ERROR(ReadAddedMarkers(metadata, &vocabulary));
  RETURN_IF_ERROR(ReadMarkers(metadata, &vocabulary));
  RETURN_IF_ERROR(ReadString(metadata, "tokenizer.chat_template", &vocabulary.chat_template));
  RETURN_IF_ERROR(
      ReadString(metadata, "tokenizer.chat_template.rerank", &vocabulary.rerank_template));
  RETURN_IF_ERROR(ReadStripping(metadata, &vocabulary));
  RETURN_IF_ERROR(
      ReadTokenIds(metadata, Key("suppress_tokens"), vocabulary, &vocabulary.suppressed));
  return vocabulary;
}

}  // namespace lm
