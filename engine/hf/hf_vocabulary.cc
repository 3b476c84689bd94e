#include "engine/hf/hf_vocabulary.h"

#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "engine/base/checkpoint.h"
#include "engine/base/status_macros.h"
#include "engine/gguf/message.h"

namespace lm {
namespace {

// Where transformers says of a marker that it is an ordinary added token, its looks decide.
bool LooksLikeControl(absl::string_view name) {
  return name == "<pad>" || name == "<mask>" || absl::StartsWith(name, "<unused") ||
         (absl::StartsWith(name, "<|") && absl::EndsWith(name, "|>")) ||
         (absl::StartsWith(name, "<｜") && absl::EndsWith(name, "｜>"));
}

absl::Status AddToken(const HfObject& model, const std::string& name, uint64_t id,
                      HfVocabulary* vocabulary) {
  if (vocabulary->types[id] == HfTokenType::kNormal || vocabulary->Find(name) >= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(model.where(), ": token ", Quoted(name), " with id ", id, " appears twice"));
  }
  vocabulary->tokens[id] = name;
  vocabulary->types[id] = HfTokenType::kNormal;
  vocabulary->ids.emplace(name, static_cast<int64_t>(id));
  return absl::OkStatus();
}

// Unigram's: pairs of a name and a score, in the order of the ids.
absl::Status ReadScoredTokens(const HfObject& model, const Json& vocab, HfVocabulary* vocabulary) {
  constexpr double kUnused = -10000;
  const size_t size = vocabulary->tokens.size();
  if (vocab.size() > size) {
    return model.Error("vocab", absl::StrCat("an array of at most ", size, " tokens"));
  }
  vocabulary->scores.assign(size, kUnused);
  uint64_t id = 0;
  for (const Json& token : vocab.array()) {
    const bool scored = token.is_array() && token.size() == 2 && token.array()[0].is_string() &&
                        token.array()[1].is_number();
    if (!scored) {
      return absl::InvalidArgumentError(absl::StrCat(model.where(), ": token ", id,
                                                     ": wanted a name and a score, got ",
                                                     token.Dump().substr(0, 80)));
    }
    vocabulary->scores[id] = token.array()[1].number();
    RETURN_IF_ERROR(AddToken(model, token.array()[0].string(), id++, vocabulary));
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const HfObject& model, HfVocabulary* vocabulary) {
  const Json* const vocab = model.Find("vocab");
  if (vocab != nullptr && vocab->is_array()) return ReadScoredTokens(model, *vocab, vocabulary);
  if (vocab == nullptr || !vocab->is_object()) return model.Error("vocab", "an object");
  const uint64_t size = vocabulary->tokens.size();
  for (const auto& [name, id] : vocab->members()) {
    RETURN_IF_ERROR(Checkpoint());
    if (!id.is_unsigned() || id.unsigned_integer() >= size) {
      return absl::InvalidArgumentError(absl::StrCat(model.where(), ": token ", Quoted(name),
                                                     ": wanted an id below ", size, ", got ",
                                                     Excerpt(id.Dump(), 40)));
    }
    RETURN_IF_ERROR(AddToken(model, name, id.unsigned_integer(), vocabulary));
  }
  return absl::OkStatus();
}

absl::Status ReadAddedTokens(const HfObject& tokenizer, HfVocabulary* vocabulary) {
  const Json* const added = tokenizer.Find("added_tokens");
  if (added == nullptr) return absl::OkStatus();
  if (!added->is_array()) return tokenizer.Error("added_tokens", "an array");
  for (const Json& element : added->array()) {
    RETURN_IF_ERROR(Checkpoint());
    const HfObject token(element, absl::StrCat(tokenizer.where(), ": added_tokens"));
    ASSIGN_OR_RETURN(const int64_t id, token.Int("id"));
    ASSIGN_OR_RETURN(const std::string name, token.Text("content"));
    ASSIGN_OR_RETURN(const bool special, token.Bool("special", false));
    ASSIGN_OR_RETURN(const bool strips_before, token.Bool("lstrip", false));
    ASSIGN_OR_RETURN(const bool strips_after, token.Bool("rstrip", false));
    if (id < 0) return token.Error("id", "0 or more");
    if (id >= static_cast<int64_t>(vocabulary->tokens.size())) continue;
    const int64_t known = vocabulary->Find(name);
    if (known >= 0 && known != id) return token.Error("id", absl::StrCat(known));
    if (known < 0 && vocabulary->types[id] != HfTokenType::kUnused) {
      return token.Error("content", Quoted(vocabulary->tokens[id]));
    }
    const bool control = special || LooksLikeControl(name);
    vocabulary->types[id] = control ? HfTokenType::kControl : HfTokenType::kUserDefined;
    // Those are found in the text itself, where spaces are spaces.
    vocabulary->tokens[id] = control ? name : absl::StrReplaceAll(name, {{"\xe2\x96\x81", " "}});
    vocabulary->ids.emplace(name, id);
    if (strips_before) vocabulary->strip_before.push_back(id);
    if (strips_after) vocabulary->strip_after.push_back(id);
  }
  return absl::OkStatus();
}

// "a b", or ["a", "b"].
absl::Status ReadMerges(const HfObject& model, HfVocabulary* vocabulary) {
  const Json* const merges = model.Find("merges");
  if (merges == nullptr) return absl::OkStatus();
  if (!merges->is_array()) return model.Error("merges", "an array");
  vocabulary->merges.reserve(merges->size());
  for (const Json& merge : merges->array()) {
    RETURN_IF_ERROR(Checkpoint());
    if (merge.is_string()) {
      vocabulary->merges.push_back(merge.string());
    } else if (merge.is_array() && merge.size() == 2 && merge.array()[0].is_string() &&
               merge.array()[1].is_string()) {
      vocabulary->merges.push_back(
          absl::StrCat(merge.array()[0].string(), " ", merge.array()[1].string()));
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat(model.where(), ": merge ", vocabulary->merges.size(),
                       ": wanted two strings, got ", Excerpt(merge.Dump(), 80)));
    }
  }
  return absl::OkStatus();
}

// Expressions as releases of transformers write them; a line for each step of the splitting.
constexpr absl::string_view kOwn = "ByteLevel";  // GPT-2's
#define LM_CASELESS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LM_UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LM_LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define LM_BREAKS R"(\s*[\r\n]+|\s+(?!\S)|\s+)"

struct Split {
  absl::string_view name;
  absl::string_view steps;
};
constexpr Split kSplits[] = {
    {"gpt-2", kOwn},
    {"smollm", "Digits\nByteLevel"},
    {"llama-bpe",
     LM_CASELESS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" LM_BREAKS},
    {"qwen2",
     LM_CASELESS R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" LM_BREAKS},
    {"qwen35", LM_CASELESS
     R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|)" LM_BREAKS},
    {"tekken", R"([^\r\n\p{L}\p{N}]?)" LM_UPPER "*" LM_LOWER R"(+|[^\r\n\p{L}\p{N}]?)" LM_UPPER
               "+" LM_LOWER R"(*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" LM_BREAKS},
    {"gpt-4o", R"([^\r\n\p{L}\p{N}]?)" LM_UPPER "*" LM_LOWER "+" LM_CASELESS
               R"(?|[^\r\n\p{L}\p{N}]?)" LM_UPPER "+" LM_LOWER "*" LM_CASELESS
               R"(?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|)" LM_BREAKS},
};
#undef LM_CASELESS
#undef LM_UPPER
#undef LM_LOWER
#undef LM_BREAKS

// Appends the steps of a pre_tokenizer.
absl::Status AddSteps(const HfObject& pre, int depth, std::string* steps) {
  ASSIGN_OR_RETURN(const std::string type, pre.Text("type"));
  if (type == "Sequence") {
    const Json* const parts = pre.Find("pretokenizers");
    if (parts == nullptr || !parts->is_array() || depth > 3) {
      return pre.Error("pretokenizers", "an array");
    }
    for (const Json& part : parts->array()) {
      RETURN_IF_ERROR(AddSteps(HfObject(part, pre.where()), depth + 1, steps));
    }
    return absl::OkStatus();
  }
  auto add = [steps](absl::string_view step) {
    absl::StrAppend(steps, steps->empty() ? "" : "\n", step);
  };
  if (type == "ByteLevel") {
    ASSIGN_OR_RETURN(const bool prefixed, pre.Bool("add_prefix_space", false));
    if (prefixed) return pre.Unsupported("add_prefix_space");
    ASSIGN_OR_RETURN(const bool splits, pre.Bool("use_regex", true));
    if (splits) add(kOwn);
    return absl::OkStatus();
  }
  if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool single, pre.Bool("individual_digits", false));
    add(single ? "Digits" : "Digits in runs");
    return absl::OkStatus();
  }
  const Json* const pattern = pre.Find("pattern");
  const Json* const regex = pattern == nullptr ? nullptr : pattern->Find("Regex");
  if (type != "Split" || regex == nullptr || !regex->is_string()) return pre.Unsupported("type");
  ASSIGN_OR_RETURN(const std::string behavior, pre.Text("behavior"));
  ASSIGN_OR_RETURN(const bool inverted, pre.Bool("invert", false));
  // What matches is a piece, and so is what does not: the expressions leave nothing out.
  if (behavior != (inverted ? "Removed" : "Isolated")) return pre.Unsupported("behavior");
  add(regex->string());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<HfVocabulary> ReadHfVocabulary(const HfObject& tokenizer, const HfObject& model,
                                              int64_t size) {
  constexpr int64_t kMostTokens = 1 << 21;
  if (size > kMostTokens) {
    return absl::InvalidArgumentError(
        absl::StrCat(tokenizer.where(), ": ", size, " tokens, at most ", kMostTokens, " are read"));
  }
  HfVocabulary vocabulary;
  vocabulary.tokens.resize(size);
  vocabulary.types.assign(size, HfTokenType::kUnused);
  RETURN_IF_ERROR(ReadTokens(model, &vocabulary));
  RETURN_IF_ERROR(ReadAddedTokens(tokenizer, &vocabulary));
  RETURN_IF_ERROR(ReadMerges(model, &vocabulary));
  for (int64_t i = 0; i < size; ++i) {
    if (vocabulary.types[i] == HfTokenType::kUnused)
      vocabulary.tokens[i] = absl::StrCat("[PAD", i, "]");
  }
  return vocabulary;
}

absl::StatusOr<std::string> SplitNameOf(const HfObject& tokenizer, const HfObject& model) {
  const Json* const pre = tokenizer.Find("pre_tokenizer");
  if (pre == nullptr) return tokenizer.Error("pre_tokenizer", "an object");
  std::string steps;
  RETURN_IF_ERROR(
      AddSteps(HfObject(*pre, absl::StrCat(tokenizer.where(), ": pre_tokenizer")), 0, &steps));
  ASSIGN_OR_RETURN(const bool whole_first, model.Bool("ignore_merges", false));
  for (const Split& split : kSplits) {
    if (split.steps != steps) continue;
    // Llama 3's, where a piece that is a token is that token, whatever merges; others have none.
    if (split.name == "llama-bpe" && !whole_first) return std::string("dbrx");
    if (split.name == "llama-bpe" || split.name == "tekken" || !whole_first) {
      return std::string(split.name);
    }
    return model.Unsupported("ignore_merges");
  }
  return absl::UnimplementedError(absl::StrCat(
      tokenizer.where(), ": the pre_tokenizer \"", absl::CHexEscape(steps.substr(0, 600)),
      "\" is not known; a GGUF file of this model says by name what it is"));
}

}  // namespace lm
