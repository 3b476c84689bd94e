// The same answers, guessed or not: what speculation (engine/runtime/speculator.h) promises, on
// real models through the real engine.
//
//   same_answers_test [--prompts 24] [--models a.gguf,b.gguf+draft.gguf]      # 10,000 prompts by
//   hand
//
// Each prompt is answered alone first, without guesses. Then, with as many guesses as there are,
// and with those that pay: alone, and 8 and 32 at a time; with a cold and a warm cache; with so
// little memory that sequences are preempted; with prefixes that another engine has stored, and
// with so little memory that they are read back again and again. A third of the prompts is answered
// greedily, a third is drawn, a third follows a constraint. Tokens, texts, ends and every token's
// logprob must be equal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/runtime/block_manager.h"
#include "engine/runtime/draft_model.h"
#include "engine/runtime/engine.h"
#include "tests/engine/model/small_model.h"
#include "tests/testdata.h"

namespace lm {
namespace {

constexpr char kSalt[] = "file:/a.db";  // prefixes of a database are stored
int num_prompts = 24;
std::vector<std::string> models = {
    LM_TESTDATA "/models/llama-q8_0.gguf", LM_TESTDATA "/models/qwen2-q4_0.gguf",
    LM_TESTDATA "/models/gemma3-f32.gguf", LM_TESTDATA "/models/llama4-f32.gguf",
    LM_SOURCE_DIR "/sql/models/debian-notes.gguf",
    // with draft models: the same one of another type, and one that knows nothing of it
    LM_TESTDATA "/models/qwen3-q8_0.gguf+qwen3-f32.gguf",
    LM_TESTDATA "/models/gemma3-q8_0.gguf+gemma3-f32.gguf",
    LM_TESTDATA "/models/cohere2-f32.gguf+gpt2-f32.gguf",
    // that guess themselves
    LM_TESTDATA "/models/glm4moe-mtp-f32.gguf", LM_TESTDATA "/models/qwen35-mtp-f32.gguf",
    // whose states cannot be taken back
    LM_TESTDATA "/models/qwen35-q8_0.gguf", LM_TESTDATA "/models/lfm2moe-f32.gguf",
    LM_TESTDATA "/models/mamba2-f32.gguf", LM_TESTDATA "/models/rwkv7-f32.gguf",
    LM_TESTDATA "/models/falcon-h1-f32.gguf", LM_TESTDATA "/models/kimi-linear-f32.gguf"};

class SameAnswers : public testing::TestWithParam<std::string> {
 protected:
  struct Answer {
    Generation result;
    std::vector<double> logprobs;
  };

  std::shared_ptr<Engine> Start(ModelOptions options = {}) {
    const std::vector<std::string> files = absl::StrSplit(GetParam(), '+');
    if (files.size() > 1) options.draft = files[1];
    auto model = Model::Load(files[0], options);
    EXPECT_TRUE(model.ok()) << model.status();
    return Engine::Start(*std::move(model), {}).value();
  }

  void SetUp() override {
    auto engine = Start({.threads = 1});
    MakeSpecs(*engine);
    for (const RequestSpec& spec : specs_) {
      expected_.push_back(Await(Submit(*engine, spec, Speculate::kOff)));
      ASSERT_TRUE(expected_.back().result.status.ok()) << expected_.back().result.status;
    }
    EXPECT_EQ(engine->Stats().tokens_drafted, 0);
    recurrent_ = engine->model().language_model().cache().recurrent();
    FindLittle(engine->model().language_model());
  }

  // Prompts that say things twice, of a few beginnings.
  void MakeSpecs(const Engine& engine) {
    const int32_t vocab = engine.model().info().vocab_size;
    auto tokens = [&](int count) {
      std::vector<int32_t> result(count);
      for (int32_t& token : result) token = 3 + static_cast<int32_t>(random_() % (vocab - 3));
      return result;
    };
    const std::vector<std::vector<int32_t>> beginnings = {tokens(70), tokens(33), tokens(1)};
    std::vector<std::pair<int32_t, double>> no_end;
    for (int32_t id = 0; id < vocab; ++id) {
      if (engine.model().tokenizer().IsEndOfGeneration(id)) no_end.push_back({id, -1e9});
    }
    for (int i = 0; i < num_prompts; ++i) {
      RequestSpec spec{.salt = kSalt};
      spec.prompt = beginnings[random_() % beginnings.size()];
      const std::vector<int32_t> said = tokens(1 + random_() % 12);
      for (int times = 1 + random_() % 3; times > 0; --times) {
        spec.prompt.insert(spec.prompt.end(), said.begin(), said.end());
      }
      // Every fourth is short and grows by several blocks, which is what preempts its neighbours.
      const bool grows = i % 4 == 0;
      if (grows) spec.prompt = said;
      spec.options.max_tokens = grows ? 4 * kKvBlockTokens : 1 + random_() % 60;
      if (grows) spec.options.logit_bias = no_end;
      if (i % 2 == 1) spec.options.repeat_penalty = 1.05;
      if (i % 3 == 1) {
        spec.options.temperature = i % 2 == 0 ? 0.2 : 0.9;
        spec.options.top_p = 0.95;
        spec.options.seed = i;
      }
      if (i % 3 == 2 && !grows) Constrain(i / 3, &spec.options);
      spec.stream = i % 7 == 0;
      spec.wants_probability = i % 5 == 0;
      spec.wants_logprob = i % 5 == 1 || spec.stream;
      specs_.push_back(std::move(spec));
    }
  }

  static void Constrain(int kind, GenerationOptions* options) {
    using Kind = AnswerConstraint::Kind;
    options->max_tokens = 200;
    options->on_length = OnLength::kComplete;
    switch (kind % 3) {
      case 0:
        options->constraint = {Kind::kRegex, "([a-c]{1,3}-(red|green|blue);){2,12}"};
        break;
      case 1:
        options->constraint = {Kind::kChoices, R"(["games","game engines","gardens","graphics"])"};
        break;
      case 2:
        options->constraint = {
            Kind::kSchema,
            R"({"type":"array","minItems":2,"maxItems":6,"items":{"type":"object",
                "properties":{"section":{"enum":["libs","mail","net"]},"new":{"type":"boolean"},
                              "stars":{"type":"integer","minimum":0,"maximum":99}},
                "required":["section","new","stars"],"additionalProperties":false}})"};
    }
  }

  static std::shared_ptr<Request> Submit(Engine& engine, RequestSpec spec, Speculate speculate) {
    spec.options.speculate = speculate;
    return engine.Submit(std::move(spec)).value();
  }

  static Answer Await(const std::shared_ptr<Request>& request) {
    EXPECT_TRUE(request->WaitFor(absl::Minutes(20))) << "no answer";
    Answer answer{.result = request->result(), .logprobs = {}};
    while (auto token = request->TakeToken()) answer.logprobs.push_back(token->logprob);
    return answer;
  }

  void Compare(int prompt, const Answer& got, const std::string& when) {
    ++comparisons_;
    const Generation &a = got.result, &b = expected_[prompt].result;
    auto same = [](const std::vector<double>& x, const std::vector<double>& y) {
      const bool empty = x.empty() && y.empty();
      return empty || (x.size() == y.size() &&
                       std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
    };
    const bool choices =
        a.first_choices.size() == b.first_choices.size() &&
        (a.first_choices.empty() || a.first_choices[0].logprob == b.first_choices[0].logprob);
    if (a.status.ok() && a.tokens == b.tokens && a.text == b.text && a.finish == b.finish &&
        choices && a.mean_logprob == b.mean_logprob &&
        same(got.logprobs, expected_[prompt].logprobs)) {
      return;
    }
    ++differences_;
    if (differences_ <= 5) {
      ADD_FAILURE() << "prompt " << prompt << " differs: " << when << ": " << a.status << " "
                    << a.text << " instead of " << b.text;
    }
  }

  void Run(Engine& engine, size_t batch, Speculate speculate, const std::string& when) {
    for (size_t begin = 0; begin < specs_.size(); begin += batch) {
      const size_t end = std::min(specs_.size(), begin + batch);
      std::vector<std::shared_ptr<Request>> requests;
      for (size_t i = begin; i < end; ++i) {
        requests.push_back(Submit(engine, specs_[i], speculate));
      }
      for (size_t i = begin; i < end; ++i) {
        Compare(static_cast<int>(i), Await(requests[i - begin]), when);
      }
    }
  }

  // Of what an engine has stored, the next ones compute nothing.
  void RunWithStore(Speculate speculate, const std::string& with) {
    const std::string folder = testing::TempDir() + absl::StrCat("same-answers-", getpid());
    const absl::Cleanup removed = [&folder] { std::filesystem::remove_all(folder); };
    ModelOptions options{.threads = 2, .prefix_store = folder};
    auto writer = Start(options);
    Run(*writer, 32, speculate, absl::StrCat("stored meanwhile", with));
    Count(*writer);
    writer->Stop();
    for (const int64_t kv_bytes : {int64_t{0}, little_}) {
      options.kv_bytes = kv_bytes;
      auto reader = Start(options);
      const auto stored = std::find_if(specs_.begin(), specs_.end(), [&](const RequestSpec& spec) {
        return reader->stored().TokensOf(kSalt, {}, spec.prompt) > 0;
      });
      EXPECT_EQ(stored == specs_.end(), reader->stored().List(kSalt).empty());
      if (stored != specs_.end()) {
        const Answer answer = Await(Submit(*reader, *stored, speculate));
        Compare(static_cast<int>(stored - specs_.begin()), answer, absl::StrCat("stored", with));
        EXPECT_GT(answer.result.tokens_cached, 0);
      }
      Run(*reader, 8, speculate,
          absl::StrCat(kv_bytes == 0 ? "stored before" : "read back again and again", with));
      Count(*reader);
      prefixes_ += static_cast<int64_t>(reader->stored().List(kSalt).size());
    }
  }

  // Memory for the longest sequence, and little more.
  void FindLittle(const LanguageModel& model) {
    int64_t longest = 0;
    for (const RequestSpec& spec : specs_) {
      longest = std::max<int64_t>(longest, spec.prompt.size() + spec.options.max_tokens);
    }
    for (const CacheClass& c : model.cache().classes) {
      const int64_t window = std::min<int64_t>(c.window, model.context_length());
      little_ += (BlocksFor(std::max(longest, window)) + 2) * c.block_bytes;
    }
    // Of a recurrent model the other half is for states.
    const int64_t state = model.cache().state_bytes;
    if (state > 0) little_ = 2 * little_ + 4 * state;
  }

  void Count(const Engine& engine) {
    drafted_ += engine.Stats().tokens_drafted;
    accepted_ += engine.Stats().tokens_accepted;
    preemptions_ += engine.Stats().preemptions;
    reused_ += engine.Stats().tokens_reused;
  }

  std::mt19937 random_{7};
  bool recurrent_ = false;
  std::vector<RequestSpec> specs_;
  std::vector<Answer> expected_;
  int64_t little_ = 0;  // bytes
  int64_t comparisons_ = 0, differences_ = 0, drafted_ = 0, accepted_ = 0, preemptions_ = 0;
  int64_t reused_ = 0, prefixes_ = 0;
};

TEST_P(SameAnswers, GuessedOrNot) {
  for (const Speculate speculate : {Speculate::kAlways, Speculate::kAuto}) {
    const std::string with = speculate == Speculate::kAuto ? ", auto" : ", always";
    for (const size_t batch : {1, 8, 32}) {
      auto engine = Start({.threads = 2});
      Run(*engine, batch, speculate, absl::StrCat("cold, ", batch, " at a time", with));
      Run(*engine, batch, speculate, absl::StrCat("warm, ", batch, " at a time", with));
      Count(*engine);
    }
    auto engine = Start({.threads = 1, .kv_bytes = little_});
    Run(*engine, 32, speculate, absl::StrCat("preempted", with));
    Count(*engine);
    RunWithStore(speculate, with);
  }
  EXPECT_EQ(differences_, 0);
  EXPECT_GT(drafted_, 0);
  EXPECT_GT(accepted_, 0);
  EXPECT_LT(accepted_, drafted_);
  // With few states no more sequences run than there are states for.
  if (!recurrent_) {
    EXPECT_GT(preemptions_, 0);
  }
  std::printf(
      "%d prompts: %ld answers compared, %ld differ; %ld tokens guessed, %ld right; %ld "
      "preemptions; %ld tokens of prompts reused, %ld stored prefixes found\n",
      num_prompts, comparisons_, differences_, drafted_, accepted_, preemptions_, reused_,
      prefixes_);
}

std::string NameOf(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param.substr(info.param.rfind('/') + 1);
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return absl::StrCat(name, "_", info.index);
}

INSTANTIATE_TEST_SUITE_P(Models, SameAnswers, testing::ValuesIn(models), NameOf);

TEST(DraftModelTest, AnotherVocabularyIsRefused) {
  auto refused = [](const std::string& model, const std::string& draft) {
    const std::string folder = LM_TESTDATA "/models/";
    return std::string(
        Model::Load(folder + model, ModelOptions{.draft = draft}).status().message());
  };
  EXPECT_THAT(refused("llama-q8_0.gguf", "qwen2-q4_0.gguf"),
              testing::HasSubstr("cannot guess for"));
  EXPECT_THAT(refused("llama-q8_0.gguf", "bert-f32.gguf"), testing::HasSubstr("writes no text"));
  EXPECT_THAT(refused("llama-yarn-f32.gguf", "mamba-f32.gguf"),
              testing::HasSubstr("it has recurrent states, which take no guess back"));
  EXPECT_THAT(refused("llama-q8_0.gguf", "nobody.gguf"), testing::HasSubstr("nobody.gguf"));
}

// Of two vocabularies one may have padding that the other lacks.
TEST(DraftModelTest, NeitherProposesNorSeesWhatOneOfTheTwoLacks) {
  SmallModel small;
  small.SetTokens({"[PAD259]", "[PAD260]"}, /*unused*/ 5);
  small.fill = [](const std::string& name, uint64_t i) {  // it says the last token
    return name == "token_embd.weight" && i / 32 == 260 ? 1.0f : 0.5f;
  };
  auto model = small.Load();
  ASSERT_TRUE(model.ok()) << model.status();
  const std::atomic<bool> cancel{false};
  for (const int32_t vocab : {259, 261, 300}) {
    DraftModel drafter(&(*model)->language_model(), vocab, &cancel);
    for (const std::vector<int32_t>& context :
         {std::vector<int32_t>{1, 50, 100}, std::vector<int32_t>{1, 260, 50},
          std::vector<int32_t>{1, 261, 50}}) {
      std::unique_ptr<DraftMemory> memory;
      DraftRow row{.context = context, .most = 2, .memory = &memory};
      std::vector<CacheOp> no_ops;
      drafter.Propose(
          absl::MakeSpan(&row, 1), [](const DraftRow&) { return true; }, &no_ops);
      const bool known = vocab > 260 && context[1] < 261;
      EXPECT_EQ(row.draft.tokens, known ? std::vector<int32_t>(2, 260) : std::vector<int32_t>())
          << vocab << " " << context[1];
    }
  }
}

TEST(DraftModelTest, APaddedVocabularyIsTheSame) {
  auto load = [](const std::vector<std::string>& others, int32_t type) {
    SmallModel small;
    small.SetTokens(others, type);
    return small.Load().value();
  };
  constexpr int32_t kNormal = 1, kUnused = 5;
  const auto plain = load({}, kNormal), unused = load({"a", "b"}, kUnused);
  for (const auto& padded : {load({"[PAD259]", "[PAD260]"}, kNormal), load({"a"}, kUnused)}) {
    EXPECT_TRUE(CheckDraft(*plain, *padded).ok());
    EXPECT_TRUE(CheckDraft(*padded, *plain).ok());
  }
  EXPECT_TRUE(CheckDraft(*load({"a"}, kUnused), *unused).ok());
  const auto more = load({"[PAD259]", "b"}, kNormal);
  for (const absl::Status& status : {CheckDraft(*plain, *more), CheckDraft(*more, *plain)}) {
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr("and 260, 'b', is no padding"));
  }
  EXPECT_FALSE(CheckDraft(*unused, *more).ok());
}

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
