// The same bits, whatever else goes on: the README's promise, on real models through the real
// engine.
//
//   same_bits_test [--prompts 24] [--models a.gguf,b.gguf]      # 1000 prompts by hand
//
// Each prompt is answered alone first: one thread, nothing cached, steps of 512 tokens. Then all of
// them in batches of 2 to 64 in random order, with a cold and a warm cache, alone over a warm
// cache, with so little KV memory that sequences are preempted, with neighbours that are
// interrupted; with 1 and 2 threads and steps of 32, 128 and 512 tokens. The answers must be equal,
// and so must every bit of every row of logits that the model computes on the way: the test stands
// between engine and model and keeps a digest of each row of the first run. Their sum is printed:
// it is the same with every instruction set (LM_CPU).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <random>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "engine/base/random.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/load_vocabulary.h"
#include "engine/model/model.h"
#include "engine/runtime/block_manager.h"
#include "engine/runtime/engine.h"
#include "tests/testdata.h"

namespace lm {
namespace {

int num_prompts = 24;
std::vector<std::string> models = {LM_TESTDATA "/models/llama-q8_0.gguf",
                                   LM_TESTDATA "/models/llama-q4_k_m.gguf",
                                   LM_TESTDATA "/models/llama-rope-factors-f16.gguf",
                                   LM_TESTDATA "/models/qwen2-q4_0.gguf",
                                   LM_TESTDATA "/models/gemma3-f32.gguf",
                                   LM_TESTDATA "/models/gemma3n-f32.gguf",
                                   LM_TESTDATA "/models/llama4-f32.gguf",
                                   LM_TESTDATA "/models/qwen35-q8_0.gguf",
                                   LM_TESTDATA "/models/plamo2-f32.gguf",
                                   LM_TESTDATA "/models/deepseek4-f32.gguf",
                                   LM_SOURCE_DIR "/sql/models/debian-notes.gguf"};

// Digests of rows of logits, with the position of their token.
struct LogitBook {
  bool recording = true;
  absl::flat_hash_set<uint64_t> rows;
  int64_t seen = 0;
  int64_t strangers = 0;  // rows that nobody got alone
};

uint64_t Digest(int32_t position, absl::Span<const float> row) {
  uint64_t digest = static_cast<uint64_t>(position);
  for (float logit : row) {
    uint32_t bits;
    std::memcpy(&bits, &logit, sizeof(bits));
    digest = RandomBits(digest, bits);
  }
  return digest;
}

// A loaded model whose logits go through a book.
class WatchedModel : public LanguageModel {
 public:
  WatchedModel(std::unique_ptr<Model> model, LogitBook* book)
      : model_(std::move(model)), inner_(model_->language_model()), book_(*book) {}

  int32_t vocab_size() const override { return inner_.vocab_size(); }
  int32_t hidden_size() const override { return inner_.hidden_size(); }
  int32_t context_length() const override { return inner_.context_length(); }
  const CacheShape& cache() const override { return inner_.cache(); }

  // Reads the logits of the rows that tokens are picked from, too.
  absl::Status Run(ModelStep step, const std::atomic<bool>& cancel, StepResults* results) override {
    asked_ = step.logit_rows;
    for (const SamplingRow& sample : step.samples) step.logit_rows.push_back(sample.row);
    std::sort(step.logit_rows.begin(), step.logit_rows.end());
    step.logit_rows.erase(std::unique(step.logit_rows.begin(), step.logit_rows.end()),
                          step.logit_rows.end());
    step_ = step;
    absl::Status status = inner_.Run(std::move(step), cancel, results);
    if (!status.ok()) return status;
    std::vector<float> asked;
    auto sequence = step_.tables.sequences.begin();
    for (size_t i = 0; i < step_.logit_rows.size(); ++i) {
      while (step_.logit_rows[i] >= sequence->first_row + sequence->num_tokens) ++sequence;
      const int32_t position = sequence->first_position + step_.logit_rows[i] - sequence->first_row;
      const absl::Span<const float> row =
          absl::MakeConstSpan(results->logits).subspan(i * vocab_size(), vocab_size());
      if (std::binary_search(asked_.begin(), asked_.end(), step_.logit_rows[i])) {
        asked.insert(asked.end(), row.begin(), row.end());
      }
      const uint64_t digest = Digest(position, row);
      ++book_.seen;
      if (book_.recording) {
        book_.rows.insert(digest);
      } else {
        book_.strangers += !book_.rows.contains(digest);
      }
    }
    results->logits = std::move(asked);
    return status;
  }

  absl::Span<char> BlockMemory(int32_t cache_class, int32_t block) override {
    return inner_.BlockMemory(cache_class, block);
  }
  absl::Span<char> StateMemory(int32_t slot) override { return inner_.StateMemory(slot); }
  absl::StatusOr<std::vector<float>> ApplyHead(bool ranks,
                                               absl::Span<const float> pooled) override {
    return inner_.ApplyHead(ranks, pooled);
  }

 private:
  const std::unique_ptr<Model> model_;
  LanguageModel& inner_;
  LogitBook& book_;
  ModelStep step_;
  std::vector<int32_t> asked_;  // the rows whose logits the engine reads
};

std::shared_ptr<Engine> StartWatched(const std::string& path, const ModelOptions& options,
                                     const EngineOptions& engine_options, LogitBook* book) {
  auto model = Model::Load(path, options);
  EXPECT_TRUE(model.ok()) << model.status();
  auto gguf = GgufFile::Open(path);
  auto tokenizer = Tokenizer::Create(LoadVocabulary((*gguf)->metadata()).value());
  ModelInfo info = (*model)->info();
  const ChatTemplate chat_template = (*model)->chat_template();
  return Engine::Start(
             std::make_unique<Model>(std::move(info), *std::move(tokenizer), chat_template,
                                     std::make_unique<WatchedModel>(*std::move(model), book)),
             engine_options)
      .value();
}

class SameBits : public testing::TestWithParam<std::string> {
 protected:
  static constexpr int kLongestAnswer = 4 * kKvBlockTokens;

  void SetUp() override {
    expected_.resize(num_prompts);
    {
      auto engine = StartWatched(GetParam(), {.threads = 1}, {.prefix_cache = false}, &book_);
      cache_ = engine->model().language_model().cache();
      context_length_ = engine->model().language_model().context_length();
      MakeSpecs(*engine);
      for (int i = 0; i < num_prompts; ++i) expected_[i] = Await(engine->Submit(specs_[i]).value());
      for (const Generation& g : expected_) ASSERT_TRUE(g.status.ok()) << g.status;
    }
    book_.recording = false;
    absl::flat_hash_set<std::string> texts;
    for (const Generation& g : expected_) texts.insert(g.text);
    ASSERT_GT(texts.size(), expected_.size() / 4) << "the answers hardly differ";
  }

  // Random tokens with and without common beginnings; greedy and sampled; short and long.
  void MakeSpecs(const Engine& engine) {
    const int32_t vocab = engine.model().info().vocab_size;
    const int longest = std::min(engine.max_sequence_tokens() - kLongestAnswer, 420);
    auto tokens = [&](int count) {
      std::vector<int32_t> result(count);
      for (int32_t& token : result) token = 3 + static_cast<int32_t>(random_() % (vocab - 3));
      return result;
    };
    std::vector<std::vector<int32_t>> prefixes = {{}, {}};
    for (int i = 0; i < 6; ++i) prefixes.push_back(tokens(1 + random_() % (longest - 64)));
    std::vector<std::pair<int32_t, double>> no_end;
    for (int32_t id = 0; id < vocab; ++id) {
      if (engine.model().tokenizer().IsEndOfGeneration(id)) no_end.push_back({id, -1e9});
    }
    for (int i = 0; i < num_prompts; ++i) {
      // Every fourth is short and grows by several blocks, which is what preempts its neighbours.
      const bool grows = i % 4 == 0;
      RequestSpec spec{.salt = "s"};
      spec.options.speculate = Speculate::kOff;  // rows of wrong guesses are nobody else's
      if (!grows) spec.prompt = prefixes[random_() % prefixes.size()];
      // What a template would say, of some.
      if (i % 3 == 0 && !spec.prompt.empty()) {
        spec.borders.push_back(static_cast<int32_t>(spec.prompt.size()));
      }
      const std::vector<int32_t> own = tokens(1 + random_() % (grows ? 10 : 60));
      spec.prompt.insert(spec.prompt.end(), own.begin(), own.end());
      spec.options.max_tokens = grows ? kLongestAnswer : 1 + random_() % 16;
      if (grows) spec.options.logit_bias = no_end;
      if (i % 2 == 1) {
        spec.options.temperature = 0.9;
        spec.options.top_p = 0.95;
        spec.options.repeat_penalty = 1.1;
        spec.options.seed = i;
      }
      specs_.push_back(std::move(spec));
    }
  }

  Generation Await(const std::shared_ptr<Request>& request) {
    EXPECT_TRUE(request->WaitFor(absl::Seconds(120))) << "no answer";
    return request->result();
  }

  void Compare(int prompt, const Generation& got, const std::string& when) {
    ++comparisons_;
    EXPECT_TRUE(got.status.ok()) << got.status;
    if (got.tokens == expected_[prompt].tokens && got.text == expected_[prompt].text) return;
    ++differences_;
    if (differences_ <= 5) ADD_FAILURE() << "prompt " << prompt << " differs: " << when;
  }

  std::vector<int> Shuffled() {
    std::vector<int> order(num_prompts);
    for (int i = 0; i < num_prompts; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    return order;
  }

  // All prompts in random order in batches of 2 to 64. With `interrupt`, every third is cancelled
  // while its neighbours go on.
  void RunBatches(Engine& engine, const std::string& when, const std::string& salt,
                  bool interrupt = false) {
    const std::vector<int> order = Shuffled();
    for (size_t begin = 0; begin < order.size();) {
      const size_t end = std::min<size_t>(order.size(), begin + 2 + random_() % 63);
      std::vector<std::shared_ptr<Request>> requests;
      for (size_t i = begin; i < end; ++i) {
        RequestSpec spec = specs_[order[i]];
        spec.salt = salt;
        requests.push_back(engine.Submit(std::move(spec)).value());
      }
      std::vector<bool> cancelled(requests.size());
      for (size_t i = 0; interrupt && i < requests.size(); ++i) {
        if (random_() % 3 != 0) continue;
        absl::SleepFor(absl::Microseconds(random_() % 500));
        cancelled[i] = true;
        requests[i]->Cancel();
      }
      for (size_t i = 0; i < requests.size(); ++i) {
        const Generation got = Await(requests[i]);
        if (cancelled[i] && got.status.code() == absl::StatusCode::kCancelled) {
          ++interrupted_;
        } else {
          Compare(order[begin + i], got, when);
        }
      }
      begin = end;
    }
  }

  void RunAlone(Engine& engine, const std::string& when) {
    for (int i : Shuffled()) Compare(i, Await(engine.Submit(specs_[i]).value()), when);
  }

  // KV memory for a sequence of so many tokens and little more; a window's is had in any case.
  int64_t TightBytes(int64_t tokens) const {
    int64_t bytes = 0;
    for (const CacheClass& c : cache_.classes) {
      const int64_t window = std::min<int64_t>(c.window, context_length_);
      bytes += (BlocksFor(std::max(tokens, window)) + 2) * c.block_bytes;
    }
    // Half is for states.
    return cache_.state_bytes > 0 ? 2 * bytes + 6 * cache_.state_bytes : bytes;
  }

  std::mt19937 random_{5};
  LogitBook book_;
  CacheShape cache_;
  int32_t context_length_ = 0;
  std::vector<RequestSpec> specs_;
  std::vector<Generation> expected_;
  int64_t comparisons_ = 0, differences_ = 0, interrupted_ = 0, preemptions_ = 0;
};

TEST_P(SameBits, InAnyCompanyWithAnyCacheThreadsAndSteps) {
  int64_t longest = 0;
  for (const RequestSpec& spec : specs_) {
    longest = std::max<int64_t>(longest, spec.prompt.size() + spec.options.max_tokens);
  }
  for (int threads : {1, 2}) {
    for (int32_t step_tokens : {32, 128, 512}) {
      const std::string with = absl::StrCat(", ", threads, " threads, steps of ", step_tokens);
      {
        auto engine =
            StartWatched(GetParam(), {.threads = threads}, {.step_tokens = step_tokens}, &book_);
        RunBatches(*engine, absl::StrCat("in batches, cold", with), "s");
        RunBatches(*engine, absl::StrCat("in batches, warm", with), "s");
        RunAlone(*engine, absl::StrCat("alone, warm", with));
        RunBatches(*engine, absl::StrCat("beside interrupted ones", with), "t", true);
      }
      for (bool prefix_cache : {true, false}) {
        auto engine =
            StartWatched(GetParam(), {.threads = threads, .kv_bytes = TightBytes(longest)},
                         {.step_tokens = step_tokens, .prefix_cache = prefix_cache}, &book_);
        RunBatches(*engine, absl::StrCat("preempted", with), "s");
        preemptions_ += engine->Stats().preemptions;
      }
    }
  }
  EXPECT_EQ(differences_, 0);
  EXPECT_EQ(book_.strangers, 0) << "of " << book_.seen << " rows of logits";
  EXPECT_GT(interrupted_, 0);
  EXPECT_GT(preemptions_, 0);
  uint64_t digest = 0;
  for (uint64_t row : book_.rows) digest += row;
  std::printf(
      "%d prompts: %ld answers and %ld rows of logits compared, %ld and %ld differ; %ld "
      "interrupted, %ld preemptions; digest %016lx\n",
      num_prompts, comparisons_, book_.seen, differences_, book_.strangers, interrupted_,
      preemptions_, digest);
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.rfind('/') + 1);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return absl::StrCat(name, "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(Models, SameBits, testing::ValuesIn(models), NameOf);

}  // namespace

void TakeArguments(int argc, char** argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--prompts") == 0) num_prompts = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--models") == 0) models = absl::StrSplit(argv[i + 1], ',');
  }
}

}  // namespace lm

int main(int argc, char** argv) {
  lm::TakeArguments(argc, argv);  // before the tests of each model are made
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
