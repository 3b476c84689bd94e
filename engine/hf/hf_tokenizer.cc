#include "engine/hf/hf_tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "engine/base/checkpoint.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"
#include "engine/hf/hf_vocabulary.h"
#include "engine/hf/safetensors.h"

namespace lm {
namespace {

constexpr absl::string_view kSpace = "\xe2\x96\x81";  // U+2581
// Patterns of normalizers.
constexpr absl::string_view kASpace = R"({"String":" "})";
constexpr absl::string_view kSeveralSpaces = R"({"Regex":" {2,}"})";
constexpr uint64_t kMaxTemplateBytes = 1 << 20;
// The largest known, Gemma's, has 33 MB and 1.8 million.
constexpr JsonLimits kTokenizerJson = {64 << 20, 4 << 20};

// Whether a normalizer does nothing, or no more than NFC, which is not applied.
bool IsNoMoreThanNfc(const Json& normalizer, int depth) {
  const Json* const type = normalizer.Find("type");
  if (type == nullptr) return false;
  if (*type == Json("NFC")) return true;
  const Json* const parts = normalizer.Find("normalizers");
  constexpr int kMostNested = 3;
  return *type == Json("Sequence") && parts != nullptr && parts->is_array() &&
         depth < kMostNested &&
         std::all_of(parts->array().begin(), parts->array().end(),
                     [depth](const Json& part) { return IsNoMoreThanNfc(part, depth + 1); });
}

// What is added before and behind a text.
struct Ends {
  int64_t first = -1;
  int64_t last = -1;
  bool between = false;  // two texts there is one more
};

class TokenizerKeys {
 public:
  TokenizerKeys(HfObject tokenizer, HfObject model, HfVocabulary vocabulary, Metadata* metadata)
      : tokenizer_(std::move(tokenizer)),
        model_(std::move(model)),
        vocabulary_(std::move(vocabulary)),
        metadata_(*metadata) {}

  absl::Status AddVocabulary();
  absl::Status AddSpecialTokens(const HfObject& config, const HfObject& settings,
                                const Json* generation, bool embeds);

 private:
  void Put(absl::string_view name, MetadataValue value) {
    metadata_.Insert(absl::StrCat("tokenizer.ggml.", name), std::move(value));
  }
  // As the converter of llama.cpp writes ids, which reads no others; -1, for none, as the one that
  // no vocabulary has.
  void PutId(absl::string_view role, int64_t id) {
    Put(absl::StrCat(role, "_token_id"),
        id < 0 ? uint64_t{std::numeric_limits<uint32_t>::max()} : static_cast<uint64_t>(id));
  }
  void AddByteLevel(std::string split);
  void AddSentencePiece(bool space_first);
  absl::Status AddWordPiece();
  absl::Status AddUnigram();
  // The rules of a normalizer, "" where there are none.
  absl::StatusOr<std::string> CharacterRules() const;
  // Of a normalizer or pre_tokenizer and those in its sequence, the first of that type.
  const Json* Part(absl::string_view member, absl::string_view sequence,
                   absl::string_view type) const;
  // Unimplemented, naming the part, for a normalizer or pre_tokenizer that is or has one of another
  // type, and for what one says that is not followed. `spaces` is the pattern of a Replace or
  // Split.
  absl::Status HasOnly(absl::string_view member, absl::string_view sequence,
                       std::initializer_list<absl::string_view> types,
                       absl::string_view spaces) const;
  absl::StatusOr<bool> PutsSpaceFirst() const;
  // A Metaspace's: "always", "first" or "never"; "" where none decides.
  absl::StatusOr<std::string> PrependScheme() const;
  // -1 where neither file has it.
  absl::StatusOr<int64_t> IdOf(absl::string_view role, const HfObject& config,
                               const HfObject& settings) const;
  Ends FindEnds() const;

  const HfObject tokenizer_, model_;
  HfVocabulary vocabulary_;
  Metadata& metadata_;
  bool is_word_piece_ = false;
};

const Json* TokenizerKeys::Part(absl::string_view member, absl::string_view sequence,
                                absl::string_view type) const {
  const Json* const whole = tokenizer_.Find(member);
  if (whole == nullptr) return nullptr;
  auto is_of_type = [type](const Json& part) {
    const Json* const found = part.Find("type");
    return found != nullptr && found->is_string() && found->string() == type;
  };
  if (is_of_type(*whole)) return whole;
  const Json* const parts = whole->Find(sequence);
  if (parts == nullptr || !parts->is_array()) return nullptr;
  for (const Json& part : parts->array()) {
    if (is_of_type(part)) return &part;
  }
  return nullptr;
}

absl::Status TokenizerKeys::HasOnly(absl::string_view member, absl::string_view sequence,
                                    std::initializer_list<absl::string_view> types,
                                    absl::string_view spaces) const {
  const Json* const whole = tokenizer_.Find(member);
  if (whole == nullptr) return absl::OkStatus();
  const Json* const parts = whole->Find(sequence);
  const bool is_sequence = parts != nullptr && parts->is_array();
  for (size_t i = 0; i < (is_sequence ? parts->size() : 1); ++i) {
    const HfObject part(is_sequence ? parts->array()[i] : *whole,
                        absl::StrCat(tokenizer_.where(), ": ", member));
    ASSIGN_OR_RETURN(const std::string type, part.Text("type"));
    if (std::find(types.begin(), types.end(), type) == types.end()) {
      return part.Unsupported("type");
    }
    auto is = [&part](absl::string_view name, const Json& wanted) {
      const Json* const found = part.Find(name);
      return found != nullptr && *found == wanted;
    };
    if (type == "Prepend" && !is("prepend", Json(kSpace))) return part.Unsupported("prepend");
    if (type == "Metaspace" && !is("replacement", Json(kSpace))) {
      return part.Unsupported("replacement");
    }
    const Json* const pattern = part.Find("pattern");
    if ((type == "Replace" || type == "Split") &&
        (pattern == nullptr || pattern->Dump() != spaces)) {
      return part.Unsupported("pattern");
    }
    if (type == "Replace" && !is("content", Json(kSpace)) && !is("content", Json(" "))) {
      return part.Unsupported("content");
    }
  }
  return absl::OkStatus();
}

absl::Status TokenizerKeys::AddVocabulary() {
  // Old files do not say; of those without merges WordPiece's alone have the prefix.
  const std::string old = model_.Has("merges")                      ? "BPE"
                          : model_.Has("continuing_subword_prefix") ? "WordPiece"
                                                                    : "";
  ASSIGN_OR_RETURN(const std::string type, model_.Text("type", old));
  if (type == "WordPiece") return AddWordPiece();
  const Json* const vocab = model_.Find("vocab");
  if (type == "Unigram" || (type.empty() && vocab != nullptr && vocab->is_array())) {
    return AddUnigram();
  }
  if (type != "BPE") return model_.Unsupported("type");
  ASSIGN_OR_RETURN(const bool byte_fallback, model_.Bool("byte_fallback", false));
  if (byte_fallback) {
    RETURN_IF_ERROR(HasOnly("normalizer", "normalizers", {"Prepend", "Replace"}, kASpace));
    RETURN_IF_ERROR(HasOnly("pre_tokenizer", "pretokenizers", {"Metaspace", "Split"}, kASpace));
    ASSIGN_OR_RETURN(const bool space_first, PutsSpaceFirst());
    ASSIGN_OR_RETURN(std::string scheme, PrependScheme());
    AddSentencePiece(space_first);
    // GGUF has no key for when it does; "never" add_space_prefix says.
    if (space_first && !scheme.empty()) {
      metadata_.Insert("sqlite_lm.tokenizer.prepend_scheme", std::move(scheme));
    }
    return absl::OkStatus();
  }
  const Json* const normalizer = tokenizer_.Find("normalizer");
  if (normalizer != nullptr && !IsNoMoreThanNfc(*normalizer, 0)) {
    return tokenizer_.Unsupported("normalizer");
  }
  ASSIGN_OR_RETURN(std::string split, SplitNameOf(tokenizer_, model_));
  AddByteLevel(std::move(split));
  return absl::OkStatus();
}

void TokenizerKeys::AddByteLevel(std::string split) {
  Put("model", std::string("gpt2"));
  Put("pre", std::move(split));
  Put("merges", std::move(vocabulary_.merges));
}

absl::StatusOr<std::string> TokenizerKeys::PrependScheme() const {
  const Json* const part = Part("pre_tokenizer", "pretokenizers", "Metaspace");
  // Behind that normalizer it finds the space there.
  const bool is_late = Part("normalizer", "normalizers", "Prepend") != nullptr;
  if (part == nullptr || is_late) return std::string();
  const HfObject metaspace(*part, tokenizer_.where() + ": Metaspace");
  ASSIGN_OR_RETURN(const bool old, metaspace.Bool("add_prefix_space", true));
  ASSIGN_OR_RETURN(std::string scheme,
                   metaspace.Text("prepend_scheme", std::string(old ? "always" : "never")));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return metaspace.Unsupported("prepend_scheme");
  }
  return scheme;
}

absl::StatusOr<bool> TokenizerKeys::PutsSpaceFirst() const {
  ASSIGN_OR_RETURN(const std::string scheme, PrependScheme());
  if (!scheme.empty()) return scheme != "never";
  const Json* const replace = Part("normalizer", "normalizers", "Replace");
  const Json* const content = replace == nullptr ? nullptr : replace->Find("content");
  if (content == nullptr || *content != Json(kSpace)) {
    return tokenizer_.Error("normalizer", "one that makes U+2581 of spaces");
  }
  return Part("normalizer", "normalizers", "Prepend") != nullptr;
}

// The order in which pairs merge becomes the score of what they make: that of its first merge.
void TokenizerKeys::AddSentencePiece(bool space_first) {
  HfVocabulary& v = vocabulary_;
  const double lowest = -static_cast<double>(v.merges.size());
  std::vector<double> scores(v.tokens.size(), 0);
  for (size_t i = 0; i < v.tokens.size(); ++i) {
    const std::string& token = v.tokens[i];
    if (v.types[i] == HfTokenType::kNormal && token.size() == 6 && absl::StartsWith(token, "<0x")) {
      v.types[i] = HfTokenType::kByte;
    } else if (v.types[i] == HfTokenType::kNormal) {
      scores[i] = lowest - static_cast<double>(i);
    }
  }
  for (size_t rank = 0; rank < v.merges.size() && !Interrupted(); ++rank) {
    const std::string& merge = v.merges[rank];
    const size_t cut = merge.find(' ');
    if (cut == std::string::npos) continue;
    const int64_t id = v.Find(absl::StrCat(merge.substr(0, cut), merge.substr(cut + 1)));
    if (id >= 0 && scores[id] < lowest + 0.5) scores[id] = -static_cast<double>(rank);
  }
  if (const Json* const unknown = model_.Find("unk_token")) {
    const int64_t id = unknown->is_string() ? v.Find(unknown->string()) : -1;
    if (id >= 0) v.types[id] = HfTokenType::kUnknown;
  }
  Put("model", std::string("llama"));
  Put("pre", std::string("default"));
  Put("scores", std::move(scores));
  Put("add_space_prefix", space_first);
}

absl::Status TokenizerKeys::AddWordPiece() {
  is_word_piece_ = true;
  ASSIGN_OR_RETURN(const std::string prefix,
                   model_.Text("continuing_subword_prefix", std::string("##")));
  if (prefix != "##") return model_.Unsupported("continuing_subword_prefix");
  const Json* const part = Part("normalizer", "normalizers", "BertNormalizer");
  if (part == nullptr) return tokenizer_.Error("normalizer", "a BertNormalizer");
  RETURN_IF_ERROR(HasOnly("normalizer", "normalizers", {"BertNormalizer"}, ""));
  RETURN_IF_ERROR(HasOnly("pre_tokenizer", "pretokenizers", {"BertPreTokenizer"}, ""));
  if (Part("pre_tokenizer", "pretokenizers", "BertPreTokenizer") == nullptr) {
    return tokenizer_.Error("pre_tokenizer", "a BertPreTokenizer");
  }
  const HfObject normalizer(*part, tokenizer_.where() + ": normalizer");
  for (const char* name : {"clean_text", "handle_chinese_chars"}) {
    ASSIGN_OR_RETURN(const bool on, normalizer.Bool(name, true));
    if (!on) return normalizer.Unsupported(name);
  }
  ASSIGN_OR_RETURN(const bool lower, normalizer.Bool("lowercase", true));
  ASSIGN_OR_RETURN(const bool strip, normalizer.Bool("strip_accents", lower));
  for (size_t i = 0; i < vocabulary_.tokens.size(); ++i) {
    std::string& token = vocabulary_.tokens[i];
    if (absl::StartsWith(token, "[") && absl::EndsWith(token, "]")) continue;
    if (vocabulary_.types[i] != HfTokenType::kNormal) continue;
    const bool continues = absl::StartsWith(token, prefix);
    token = continues ? token.substr(prefix.size()) : absl::StrCat(kSpace, token);
  }
  Put("model", std::string("bert"));
  Put("normalizer.lowercase", lower);
  Put("normalizer.strip_accents", strip);
  return absl::OkStatus();
}

absl::StatusOr<std::string> TokenizerKeys::CharacterRules() const {
  const Json* const part = Part("normalizer", "normalizers", "Precompiled");
  if (part == nullptr) return std::string();
  const HfObject normalizer(*part, tokenizer_.where() + ": normalizer");
  ASSIGN_OR_RETURN(const std::string text, normalizer.Text("precompiled_charsmap"));
  std::string rules;
  if (absl::Base64Unescape(text, &rules)) return rules;
  return normalizer.Error("precompiled_charsmap", "base 64");
}

// As XLM-RoBERTa's: its character rules, and words with U+2581 before them.
absl::Status TokenizerKeys::AddUnigram() {
  if (vocabulary_.scores.empty()) return model_.Error("vocab", "an array");
  ASSIGN_OR_RETURN(const bool byte_fallback, model_.Bool("byte_fallback", false));
  if (byte_fallback) return model_.Unsupported("byte_fallback");
  ASSIGN_OR_RETURN(const int64_t unknown, model_.Int("unk_id"));
  if (unknown < 0 || unknown >= static_cast<int64_t>(vocabulary_.tokens.size())) {
    return model_.Error("unk_id", absl::StrCat("an id below ", vocabulary_.tokens.size()));
  }
  vocabulary_.types[unknown] = HfTokenType::kUnknown;
  RETURN_IF_ERROR(
      HasOnly("normalizer", "normalizers", {"Precompiled", "Replace", "Strip"}, kSeveralSpaces));
  RETURN_IF_ERROR(
      HasOnly("pre_tokenizer", "pretokenizers", {"WhitespaceSplit", "Metaspace"}, kSeveralSpaces));
  if (Part("pre_tokenizer", "pretokenizers", "Metaspace") == nullptr) {
    return tokenizer_.Error("pre_tokenizer", "a Metaspace");
  }
  ASSIGN_OR_RETURN(const bool space_first, PutsSpaceFirst());
  ASSIGN_OR_RETURN(const std::string rules, CharacterRules());
  Put("model", std::string("t5"));
  Put("pre", std::string("default"));
  Put("scores", std::move(vocabulary_.scores));
  Put("unknown_token_id", unknown);
  Put("add_space_prefix", space_first);
  Put("remove_extra_whitespaces",
      Part("pre_tokenizer", "pretokenizers", "WhitespaceSplit") != nullptr ||
          Part("normalizer", "normalizers", "Replace") != nullptr);
  if (!rules.empty()) {
    std::vector<uint64_t> bytes;
    for (const char byte : rules) bytes.push_back(static_cast<uint8_t>(byte));
    Put("precompiled_charsmap", std::move(bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> TokenizerKeys::IdOf(absl::string_view role, const HfObject& config,
                                            const HfObject& settings) const {
  if (const Json* token = settings.Find(absl::StrCat(role, "_token"))) {
    if (const Json* content = token->Find("content")) token = content;
    const int64_t id = token->is_string() ? vocabulary_.Find(token->string()) : -1;
    if (id >= 0) return id;
  }
  const std::string key = absl::StrCat(role, "_token_id");
  const Json* given = config.Find(key);
  if (given != nullptr && given->is_array() && given->size() > 0) given = &given->array()[0];
  if (given == nullptr) return -1;
  const int64_t size = static_cast<int64_t>(vocabulary_.tokens.size());
  if (!given->is_integer() || given->number() < -1 ||
      given->number() >= static_cast<double>(size)) {
    return config.Error(key, absl::StrCat("an id below ", size));
  }
  return given->integer();
}

Ends TokenizerKeys::FindEnds() const {
  Ends ends;
  const Json* const part = Part("post_processor", "processors", "TemplateProcessing");
  const Json* const single = part == nullptr ? nullptr : part->Find("single");
  if (single == nullptr || !single->is_array() || single->size() < 2) return ends;
  auto id_of = [this](const Json& item) -> int64_t {
    const Json* const token = item.Find("SpecialToken");
    const Json* const id = token == nullptr ? nullptr : token->Find("id");
    return id != nullptr && id->is_string() ? vocabulary_.Find(id->string()) : -1;
  };
  ends.first = id_of(single->array().front());
  ends.last = id_of(single->array().back());
  // Of two texts the second one's beginning is marked, too, by another such token.
  const Json* const pair = part->Find("pair");
  int special = 0;
  for (size_t i = 0; pair != nullptr && pair->is_array() && i < pair->size(); ++i) {
    special += id_of(pair->array()[i]) >= 0 ? 1 : 0;
  }
  ends.between = special == 4;
  return ends;
}

absl::Status TokenizerKeys::AddSpecialTokens(const HfObject& config, const HfObject& settings,
                                             const Json* generation, bool embeds) {
  ASSIGN_OR_RETURN(const int64_t bos, IdOf("bos", config, settings));
  ASSIGN_OR_RETURN(int64_t eos, IdOf("eos", config, settings));
  int64_t eot = -1;
  const Ends ends = FindEnds();
  // Some embed with another token behind their texts than the one that ends answers.
  if (embeds && ends.last >= 0 && ends.last != eos) eot = std::exchange(eos, ends.last);
  if (generation != nullptr && generation->Find("eos_token_id") != nullptr) {
    const Json& given = *generation->Find("eos_token_id");
    std::vector<int64_t> all;
    for (const Json& id : given.is_array() ? given.array() : Json::Array{given}) {
      const bool valid = id.is_unsigned() && id.unsigned_integer() < vocabulary_.tokens.size();
      if (!valid) continue;
      all.push_back(id.integer());
      if (eot < 0 && id.integer() != eos) eot = id.integer();
    }
    if (!all.empty()) Put("eos_token_ids", std::move(all));
  }
  if (generation != nullptr && generation->Find("suppress_tokens") != nullptr) {
    const Json& ids = *generation->Find("suppress_tokens");
    std::vector<int64_t> suppressed;
    for (size_t i = 0; ids.is_array() && i < ids.size(); ++i) {
      if (ids.array()[i].is_integer()) suppressed.push_back(ids.array()[i].integer());
    }
    if (!suppressed.empty()) Put("suppress_tokens", std::move(suppressed));
  }
  // Unsaid, a default would stand for it; WordPiece has others, which are named below.
  if (bos >= 0 || !is_word_piece_) PutId("bos", bos);
  if (eos >= 0 || !is_word_piece_) PutId("eos", eos);
  if (eot >= 0) PutId("eot", eot);
  for (const auto& [role, key] :
       {std::pair("unk", "unknown"), std::pair("sep", "seperator"), std::pair("pad", "padding"),
        std::pair("cls", "cls"), std::pair("mask", "mask")}) {
    ASSIGN_OR_RETURN(int64_t id, IdOf(role, config, settings));
    // The names that transformers takes where a release says none.
    if (id < 0 && is_word_piece_) {
      id = vocabulary_.Find(absl::StrCat("[", absl::AsciiStrToUpper(role), "]"));
    }
    if (id >= 0) PutId(key, id);
  }
  if (!is_word_piece_) {
    for (const auto& [name, found] : {std::pair("add_bos_token", bos >= 0 && ends.first == bos),
                                      std::pair("add_eos_token", eos >= 0 && ends.last == eos)}) {
      ASSIGN_OR_RETURN(const bool adds, settings.Bool(name, found));
      Put(name, adds);
    }
    if (ends.between) Put("add_sep_token", true);
  }
  // No key of GGUF says so.
  for (auto& [side, ids] : {std::pair("before", &vocabulary_.strip_before),
                            std::pair("after", &vocabulary_.strip_after)}) {
    if (ids->empty()) continue;
    metadata_.Insert(absl::StrCat("sqlite_lm.tokenizer.strip_", side), std::move(*ids));
  }
  std::vector<int64_t> types(vocabulary_.types.size());
  for (size_t i = 0; i < types.size(); ++i) types[i] = static_cast<int64_t>(vocabulary_.types[i]);
  Put("token_type", std::move(types));
  Put("tokens", std::move(vocabulary_.tokens));
  return absl::OkStatus();
}

void AddTemplate(absl::string_view name, const Json& text, Metadata* metadata) {
  if (!text.is_string()) return;
  const bool plain = name.empty() || name == "default";
  metadata->Insert(
      plain ? "tokenizer.chat_template" : absl::StrCat("tokenizer.chat_template.", name),
      text.string());
}

// An object without members where there is no such file.
absl::StatusOr<Json> ReadOptional(const std::filesystem::path& path) {
  absl::StatusOr<Json> json = ReadJsonFile(path.string());
  if (absl::IsNotFound(json.status())) return Json::MakeObject();
  return json;
}

// chat_template.jinja, or what tokenizer_config.json has: one template, or several with names; or
// what of old releases of models with images chat_template.json has.
absl::Status AddTemplates(const std::filesystem::path& folder, const HfObject& settings,
                          Metadata* metadata) {
  const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file =
      OpenFile((folder / "chat_template.jinja").string());
  if (file.ok()) {
    if ((*file)->Size() > kMaxTemplateBytes) {
      return absl::InvalidArgumentError(absl::StrCat("'", (*file)->path(), "' has ",
                                                     (*file)->Size(), " bytes, at most ",
                                                     kMaxTemplateBytes, " are read"));
    }
    std::string text((*file)->Size(), '\0');
    RETURN_IF_ERROR((*file)->Read(0, absl::MakeSpan(text.data(), text.size())));
    metadata->Insert("tokenizer.chat_template", std::move(text));
    return absl::OkStatus();
  }
  if (!absl::IsNotFound(file.status())) return file.status();
  const Json* given = settings.Find("chat_template");
  Json old;
  if (given == nullptr) {
    ASSIGN_OR_RETURN(old, ReadOptional(folder / "chat_template.json"));
    given = old.Find("chat_template");
  }
  if (given == nullptr) return absl::OkStatus();
  AddTemplate("", *given, metadata);
  for (size_t i = 0; given->is_array() && i < given->size(); ++i) {
    const Json* const name = given->array()[i].Find("name");
    const Json* const text = given->array()[i].Find("template");
    if (name == nullptr || !name->is_string() || text == nullptr) continue;
    AddTemplate(name->string(), *text, metadata);
  }
  return absl::OkStatus();
}

std::string InQuotes(const std::filesystem::path& path) {
  return absl::StrCat("'", path.string(), "'");
}

}  // namespace

absl::Status AddHfTokenizer(const std::string& folder, const HfObject& config, int64_t vocab,
                            bool embeds, Metadata* metadata) {
  const std::filesystem::path root = folder;
  const std::filesystem::path path = root / "tokenizer.json";
  const absl::StatusOr<Json> found = ReadJsonFile(path.string(), kTokenizerJson);
  if (absl::IsNotFound(found.status())) {
    return absl::NotFoundError(
        absl::StrCat(found.status().message(),
                     "; vocabularies in other files, such as tokenizer.model, are not "
                     "read"));
  }
  RETURN_IF_ERROR(found.status());
  const Json& tokenizer = *found;
  ASSIGN_OR_RETURN(const Json settings, ReadOptional(root / "tokenizer_config.json"));
  ASSIGN_OR_RETURN(const Json generation, ReadOptional(root / "generation_config.json"));
  const HfObject whole(tokenizer, InQuotes(path));
  const HfObject named(settings, InQuotes(root / "tokenizer_config.json"));
  const Json* const model = whole.Find("model");
  if (model == nullptr) return whole.Error("model", "an object");
  const HfObject bpe(*model, whole.where() + ": model");
  ASSIGN_OR_RETURN(HfVocabulary vocabulary, ReadHfVocabulary(whole, bpe, vocab));
  TokenizerKeys keys(whole, bpe, std::move(vocabulary), metadata);
  RETURN_IF_ERROR(keys.AddVocabulary());
  RETURN_IF_ERROR(Checkpoint());
  RETURN_IF_ERROR(keys.AddSpecialTokens(config, named, &generation, embeds));
  return AddTemplates(root, named, metadata);
}

}  // namespace lm
