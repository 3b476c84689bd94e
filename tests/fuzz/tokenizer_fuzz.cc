// Vocabularies of untrusted model files: any are refused with a message that can be shown, or make
// a tokenizer whose tokens are its own and, of valid UTF-8, mean the text.
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "engine/model/load_vocabulary.h"
#include "engine/text/byte_alphabet.h"
#include "engine/text/tokenizer.h"
#include "tests/engine/gguf/gguf_builder.h"
#include "tests/engine/gguf/memory_file.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/showable.h"

namespace lm {
namespace {

using Strings = std::vector<std::string>;

// How a kind of vocabulary names a byte.
std::string NameOfByte(const std::string& model, int byte) {
  if (model == "gpt2") return std::string(SpellByte(static_cast<uint8_t>(byte)));
  if (model == "rwkv") return absl::StrFormat("\\x%02x", byte);
  return absl::StrFormat("<0x%02X>", byte);
}

std::string VocabularyOf(const std::string& model, const std::string& pre) {
  Strings tokens = {"<unk>",   "<s>", "</s>", "[CLS]", "ab", "\u2581a",
                    "\u0120a", "##b", "é ",   "a",     "b"};
  std::vector<int32_t> types = {2, 3, 3, 3, 1, 1, 1, 1, 4, 1, 1};
  if (model == "gpt2") {  // whose bytes are named a and b
    tokens.resize(tokens.size() - 2);
    types.resize(tokens.size());
  }
  for (int byte = 0; byte < 256 && model != "bert"; ++byte) {
    tokens.push_back(NameOfByte(model, byte));
    types.push_back(model == "gpt2" || model == "rwkv" ? 1 : 6);
  }
  GgufBuilder builder;
  builder.Add("general.architecture", "llama")
      .Add("tokenizer.ggml.model", model)
      .Add("tokenizer.ggml.pre", pre)
      .Add("tokenizer.ggml.tokens", tokens)
      .Add("tokenizer.ggml.token_type", types)
      .Add("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1.5f))
      .Add("tokenizer.ggml.merges", model == "gpt2" ? Strings{"a b", "\u0120 a"} : Strings{"a b"})
      .Add("tokenizer.ggml.bos_token_id", uint32_t{1})
      .Add("tokenizer.ggml.eos_token_id", uint32_t{2})
      .Add("tokenizer.ggml.unknown_token_id", uint32_t{0})
      .Add("tokenizer.ggml.seperator_token_id", uint32_t{3})
      .Add("tokenizer.ggml.add_space_prefix", true)
      .Add("tokenizer.ggml.remove_extra_whitespaces", true);
  if (model == "t5") {  // one unit, and a replacement
    builder.Add("tokenizer.ggml.precompiled_charsmap",
                std::vector<uint8_t>{4, 0, 0, 0, 1, 0, 0, 0, 'a', 0});
  }
  return builder.Build();
}

void Encode(const Tokenizer& tokenizer, const std::string& text) {
  const auto ids = tokenizer.EncodePlain(text);
  if (!ids.ok()) return RequireShowable(ids.status());
  for (int32_t id : *ids) Require(id >= 0 && id < tokenizer.size(), "tokens are the vocabulary's");
  tokenizer.DecodePlain(*ids);
  std::vector<int32_t> markup;
  const TextPiece pieces[] = {{text, TextKind::kMarkup}, {text, TextKind::kPlain}};
  if (absl::Status status = tokenizer.Encode(pieces, &markup); !status.ok()) {
    return RequireShowable(status);
  }
  std::vector<int32_t> inside;
  Require(tokenizer.EncodeInside(text, &inside).ok(),
          "a text that is encoded, is so inside others");
  for (int32_t id : inside) {
    Require(id == tokenizer.vocabulary().unknown || !tokenizer.IsControl(id),
            "a row's text is no control token");
  }
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const char* model : {"gpt2", "llama", "bert", "t5", "rwkv", "plamo2", "gemma4"}) {
    seeds.push_back(VocabularyOf(model, "default"));
  }
  seeds.push_back(VocabularyOf("gpt2", "llama-bpe"));
  seeds.push_back(VocabularyOf("gpt2", "qwen2"));
  return seeds;
}

std::vector<std::string> FuzzWords() {
  return {"gpt2",         "llama",           "bert",          "t5",    "rwkv",
          "plamo2",       "gemma4",          "llama-bpe",     "qwen2", "gpt-4o",
          "deepseek-llm", "<0xFF>",          "\u2581",        "##",    "'\\x00'",
          "\xef\xbf\xbd", "tokenizer.ggml.", "add_bos_token", "</s>"};
}

}  // namespace lm

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto gguf = lm::OpenGguf(std::string(reinterpret_cast<const char*>(data), size));
  if (!gguf.ok()) return 0;  // gguf_fuzz's
  auto vocabulary = lm::LoadVocabulary((*gguf)->metadata());
  if (!vocabulary.ok()) {
    lm::RequireShowable(vocabulary.status());
    return 0;
  }
  const auto tokenizer = lm::Tokenizer::Create(*std::move(vocabulary));
  if (!tokenizer.ok()) {
    lm::RequireShowable(tokenizer.status());
    return 0;
  }
  for (const char* text :
       {"", "ab A\u00e9\n  </s> <s>a 'll 1234", "\u4f60\U0001f600\u0301 \t\r\n[CLS]##b"}) {
    lm::Encode(**tokenizer, text);
  }
  return 0;
}
