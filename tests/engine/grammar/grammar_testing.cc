#include "tests/engine/grammar/grammar_testing.h"

#include <cstdio>
#include <cstdlib>
#include <set>

#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"

namespace lm {

bool Accepts(const std::shared_ptr<const Grammar>& grammar, absl::string_view text) {
  return ValueOrDie(grammar->Matches(text));
}

std::vector<std::string> SomeVocabulary(absl::Span<const std::string> words) {
  std::vector<std::string> vocabulary = {"", "</s>", ""};
  for (int byte = 0; byte < 256; ++byte) vocabulary.push_back(std::string(1, byte));
  vocabulary.insert(vocabulary.end(), words.begin(), words.end());
  for (const char* piece : {"the",
                            " the",
                            "a",
                            " a",
                            "ab",
                            "abc",
                            "ba",
                            "aa",
                            "bb",
                            "12",
                            "2024",
                            "-0",
                            "0.",
                            ".5",
                            "e1",
                            "{\"",
                            "\":",
                            "\": \"",
                            "\",",
                            "\", \"",
                            "\"}",
                            "}]",
                            "]}",
                            "[[",
                            "[]",
                            "{}",
                            "\\\"",
                            "\\u00",
                            "\\n",
                            "null",
                            "true",
                            "false",
                            "é",
                            "日",
                            "本語",
                            "😀",
                            "\xe6\x97",
                            "\xa5",
                            "\xf0\x9f",
                            "\x98\x80",
                            "a\xc3",
                            "\xa9z",
                            "    ",
                            "                    ",
                            ", ",
                            ": ",
                            "abcdefghijklmnopqrstuvwxyz",
                            "\n",
                            "\n\n",
                            "<b>",
                            "=>",
                            "ab"}) {
    vocabulary.push_back(piece);
  }
  return vocabulary;
}

std::shared_ptr<const TokenTrie> TrieOf(const std::vector<std::string>& vocabulary) {
  std::vector<absl::string_view> views(vocabulary.begin(), vocabulary.end());
  return ValueOrDie(TokenTrie::Create(views, {0, 1}));
}

std::vector<std::string> LargeVocabulary(int size) {
  std::mt19937 dice(7);
  auto below = [&dice](int n) { return static_cast<int>(dice() % n); };
  std::vector<std::string> vocabulary = SomeVocabulary();
  std::set<std::string> known(vocabulary.begin(), vocabulary.end());
  while (static_cast<int>(vocabulary.size()) < size) {
    std::string word;
    switch (below(20)) {
      case 0:
        for (int n = 1 + below(3); n > 0; --n) word.push_back('0' + below(10));
        break;
      case 1:
        for (int n = 1 + below(4); n > 0; --n)
          word.push_back("\"'{}[]():,.;<>/\\=-_+*&!?"[below(24)]);
        break;
      case 2:
        for (int n = 1 + below(3); n > 0; --n) AppendUtf8(0xc0 + below(0x180), &word);
        break;
      case 3:
        for (int n = 1 + below(3); n > 0; --n) AppendUtf8(0x4e00 + below(0x3000), &word);
        break;
      case 4:
        AppendUtf8(0x4e00 + below(0x3000), &word);
        word = below(2) == 0 ? word.substr(0, 1 + below(2)) : word.substr(1 + below(2));
        break;
      case 5:
        word = std::string(1 + below(120), below(4) == 0 ? '=' : ' ');
        break;
      default:
        if (below(2) == 0) word.push_back(' ');
        for (int n = 2 + below(8); n > 0; --n) word.push_back("etaoinshrdlucmfwygpb"[below(20)]);
    }
    if (known.insert(word).second) vocabulary.push_back(word);
  }
  return vocabulary;
}

std::vector<bool> MaskOf(GrammarMatcher* matcher, const TokenTrie& trie) {
  std::vector<uint64_t> words(trie.mask_words());
  absl::Status status = matcher->FillMask(absl::MakeSpan(words));
  if (!status.ok()) {
    fprintf(stderr, "%s\n", status.ToString().c_str());
    abort();
  }
  std::vector<bool> mask(trie.num_tokens());
  for (int32_t id = 0; id < trie.num_tokens(); ++id) mask[id] = words[id / 64] >> (id % 64) & 1;
  return mask;
}

std::vector<bool> BruteForceMask(const GrammarMatcher& matcher, const TokenTrie& trie) {
  std::vector<bool> mask(trie.num_tokens());
  for (int32_t id = 0; id < trie.num_tokens(); ++id) {
    if (trie.IsEndOfGeneration(id)) {
      mask[id] = matcher.CanEnd();
      continue;
    }
    const absl::string_view bytes = trie.TokenBytes(id);
    if (bytes.empty()) continue;
    GrammarMatcher copy = matcher;
    mask[id] = true;
    for (size_t i = 0; i < bytes.size() && mask[id]; ++i) {
      mask[id] = copy.AcceptBytes(bytes.substr(i, 1)).ok();
    }
  }
  return mask;
}

absl::StatusOr<std::string> RandomText(std::shared_ptr<Constraint> constraint, std::mt19937* dice,
                                       int soft_limit, int hard_limit) {
  const TokenTrie& trie = constraint->trie();
  GrammarMatcher matcher(constraint);
  std::vector<uint64_t> words(trie.mask_words());
  std::string text;
  for (int step = 0; step < hard_limit; ++step) {
    if (matcher.IsComplete()) return text;
    if (matcher.CanEnd() && (step > soft_limit || (*dice)() % 8 == 0)) return text;
    RETURN_IF_ERROR(matcher.FillMask(absl::MakeSpan(words)));
    std::vector<int32_t> allowed, closing;
    for (int32_t id = 0; id < trie.num_tokens(); ++id) {
      if ((words[id / 64] >> (id % 64) & 1) == 0 || trie.IsEndOfGeneration(id)) continue;
      allowed.push_back(id);
      const absl::string_view bytes = trie.TokenBytes(id);
      if (bytes == "\"" || bytes == "]" || bytes == "}") closing.push_back(id);
    }
    if (step > soft_limit && !closing.empty() && (*dice)() % 4 != 0) allowed = closing;
    if (allowed.empty()) return absl::InternalError("only the end is allowed, but not complete");
    const int32_t token = allowed[(*dice)() % allowed.size()];
    RETURN_IF_ERROR(matcher.Accept(token));
    const absl::string_view bytes = trie.TokenBytes(token);
    text.append(bytes.data(), bytes.size());
  }
  return absl::InternalError("no end in sight: " + text);
}

}  // namespace lm
