// Times of constrained decoding over a vocabulary of 50,000 tokens (or argv[1]): compilation, masks
// that are computed and masks that are found, tokens accepted. Not a test.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "tests/engine/grammar/grammar_testing.h"

namespace lm {
namespace {

double MicrosecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
      .count();
}

struct Times {
  std::vector<double> all;
  double Mean() const {
    return all.empty() ? 0 : std::accumulate(all.begin(), all.end(), 0.0) / all.size();
  }
  double Worst() const { return all.empty() ? 0 : *std::max_element(all.begin(), all.end()); }
  double Median() {
    if (all.empty()) return 0;
    std::nth_element(all.begin(), all.begin() + all.size() / 2, all.end());
    return all[all.size() / 2];
  }
};

// Walks of random plain tokens where they are allowed, else of random tokens.
void Walk(const std::shared_ptr<Constraint>& constraint, int seed, Times* masks, Times* accepts) {
  const TokenTrie& trie = constraint->trie();
  std::mt19937 dice(seed);
  std::vector<uint64_t> mask(trie.mask_words());
  GrammarMatcher matcher(constraint);
  for (int step = 0; step < 60 && !matcher.IsComplete(); ++step) {
    auto start = std::chrono::steady_clock::now();
    if (!matcher.FillMask(absl::MakeSpan(mask)).ok()) abort();
    masks->all.push_back(MicrosecondsSince(start));
    std::vector<int32_t> allowed;
    for (int32_t id = 2; id < trie.num_tokens(); ++id) {
      if (mask[id / 64] >> (id % 64) & 1) allowed.push_back(id);
    }
    if (allowed.empty()) return;
    const int32_t token = allowed[dice() % allowed.size()];
    start = std::chrono::steady_clock::now();
    if (!matcher.Accept(token).ok()) abort();
    accepts->all.push_back(MicrosecondsSince(start));
  }
}

void Measure(const char* name, const std::shared_ptr<const TokenTrie>& trie,
             const std::function<absl::StatusOr<std::shared_ptr<const Grammar>>()>& compile) {
  const auto start = std::chrono::steady_clock::now();
  const auto grammar = ValueOrDie(compile());
  const double compiled = MicrosecondsSince(start);
  const auto constraint = ValueOrDie(Constraint::Create(grammar, trie));
  Times cold, cold_accepts, warm, warm_accepts;
  for (int seed = 0; seed < 10; ++seed) Walk(constraint, seed, &cold, &cold_accepts);
  for (int seed = 0; seed < 10; ++seed) Walk(constraint, seed, &warm, &warm_accepts);
  printf(
      "%-10s compile %7.0f us   masks, first walks: mean %7.1f worst %7.0f us   repeated: "
      "median %5.2f mean %5.2f us   accept %5.2f us\n",
      name, compiled, cold.Mean(), cold.Worst(), warm.Median(), warm.Mean(), warm_accepts.Median());
}

void Main(int size) {
  const std::vector<std::string> vocabulary = LargeVocabulary(size);
  const auto start = std::chrono::steady_clock::now();
  const auto trie = TrieOf(vocabulary);
  printf("trie of %d tokens: %.1f ms, %d nodes\n", size, MicrosecondsSince(start) / 1000,
         trie->all().num_nodes());
  Measure("labels", trie, [] { return CompileChoices({"positive", "negative", "neutral"}); });
  Measure("regex", trie, [] { return CompileRegex("[A-Z][a-z]+( [a-z]+)*\\."); });
  Measure("any json", trie, [] { return CompileJsonSchema("{}"); });
  Measure("schema", trie, [] {
    return CompileJsonSchema(R"({"type": "object", "properties": {
        "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "mood": {"enum": ["good", "bad"]}, "born": {"type": "string", "format": "date"},
        "tags": {"type": "array", "items": {"type": "string"}}}, "required": ["name", "age"]})");
  });
  Measure("maxLength", trie, [] {
    return CompileJsonSchema(R"({"type": "array", "items": {"type": "string", "maxLength": 500}})");
  });
  Measure("gbnf", trie, [] {
    return CompileGbnf(
        "root ::= expr\nexpr ::= term ([-+*/] term)*\n"
        "term ::= [0-9]+ | [a-z]+ | \"(\" expr \")\"\n");
  });
}

}  // namespace
}  // namespace lm

int main(int argc, char** argv) { lm::Main(argc > 1 ? atoi(argv[1]) : 50000); }
