// The peer of compare_answers.py: llama.cpp's greedy answers, and how close its choices were.
//
//   llama_cpp_greedy MODEL.gguf PROMPTS TOKENS
//
// PROMPTS holds prompts with the control tokens spelled out, separated by the byte 0x1E. Printed
// for each: the answer, 0x1F, the smallest gap between the two best logits of a step, 0x1F, all
// gaps with commas, 0x1E. An answer has at most TOKENS tokens.
//
// Not built with the rest, which needs no llama.cpp. With its headers and libraries at hand:
//   g++ -O2 -std=c++20 -ILLAMA/include -ILLAMA/ggml/include tests/parity/llama_cpp_greedy.cc -o
//   greedy LIBLLAMA LIBGGML LIBGGML_BASE
// LLAMA_CPP_BACKEND names the CPU library to load, where ggml was built with loadable ones.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "llama.h"

namespace {

constexpr int kContext = 2048;

void PrintErrors(ggml_log_level level, const char* text, void*) {
  if (level >= GGML_LOG_LEVEL_ERROR) std::fputs(text, stderr);
}

std::vector<llama_token> Tokenize(const llama_vocab* vocab, const std::string& text) {
  std::vector<llama_token> tokens(text.size() + 8);
  const int count = llama_tokenize(vocab, text.data(), static_cast<int>(text.size()), tokens.data(),
                                   static_cast<int>(tokens.size()), /*add_special=*/false,
                                   /*parse_special=*/true);
  if (count < 0) std::exit(1);
  tokens.resize(count);
  return tokens;
}

std::string PieceOf(const llama_vocab* vocab, llama_token token) {
  char piece[512];
  const int bytes = llama_token_to_piece(vocab, token, piece, sizeof(piece), 0, /*special=*/false);
  return bytes > 0 ? std::string(piece, bytes) : std::string();
}

// The best token of the last logits, and how far the next one is behind.
std::pair<llama_token, float> Best(llama_context* context, int vocab_size) {
  const float* logits = llama_get_logits_ith(context, -1);
  int best = 0, second = 1;
  if (logits[second] > logits[best]) std::swap(best, second);
  for (int i = 2; i < vocab_size; ++i) {
    if (logits[i] > logits[best]) {
      second = best;
      best = i;
    } else if (logits[i] > logits[second]) {
      second = i;
    }
  }
  return {best, logits[best] - logits[second]};
}

void Answer(llama_context* context, const llama_vocab* vocab, std::vector<llama_token> tokens,
            int most) {
  llama_memory_clear(llama_get_memory(context), true);
  std::string text, gaps;
  float smallest = 1e30f;
  for (int i = 0; i < most; ++i) {
    if (llama_decode(context, llama_batch_get_one(tokens.data(), tokens.size())) != 0) {
      std::fprintf(stderr, "llama_decode failed\n");
      std::exit(1);
    }
    auto [token, gap] = Best(context, llama_vocab_n_tokens(vocab));
    smallest = std::min(smallest, gap);
    gaps += (i > 0 ? "," : "") + std::to_string(gap);
    if (llama_vocab_is_eog(vocab, token)) break;
    text += PieceOf(vocab, token);
    tokens = {token};
  }
  std::printf("%s\x1f%g\x1f%s\x1e", text.c_str(), smallest, gaps.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: llama_cpp_greedy MODEL.gguf PROMPTS TOKENS\n");
    return 2;
  }
  llama_log_set(PrintErrors, nullptr);
  if (const char* library = std::getenv("LLAMA_CPP_BACKEND")) ggml_backend_load(library);
  llama_backend_init();
  llama_model* model = llama_model_load_from_file(argv[1], llama_model_default_params());
  if (model == nullptr) return 1;
  llama_context_params params = llama_context_default_params();
  params.n_ctx = params.n_batch = kContext;
  params.n_threads = params.n_threads_batch = 1;
  llama_context* context = llama_init_from_model(model, params);
  if (context == nullptr) return 1;
  std::ifstream file(argv[2], std::ios::binary);
  const std::string prompts((std::istreambuf_iterator<char>(file)), {});
  const llama_vocab* vocab = llama_model_get_vocab(model);
  for (size_t begin = 0, end; begin <= prompts.size(); begin = end + 1) {
    end = std::min(prompts.find('\x1e', begin), prompts.size());
    Answer(context, vocab, Tokenize(vocab, prompts.substr(begin, end - begin)), std::atoi(argv[3]));
  }
}
