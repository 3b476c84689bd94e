// PromptTally counts what requests would cost instead of running them.
//
//   PromptTally tally;
//   session.set_tally(&tally);        // from now on Submit takes note, and answers at once
//   ...
//   for (const PromptTally::Totals& totals : tally.Count()) ...
#ifndef LM_ENGINE_RUNTIME_PROMPT_TALLY_H_
#define LM_ENGINE_RUNTIME_PROMPT_TALLY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/hash_map.h"
#include "engine/runtime/generator.h"
#include "engine/runtime/memo_key.h"
#include "engine/runtime/request.h"

namespace lm {

// Not thread-safe.
class PromptTally {
 public:
  // Of all prompts together: 512 MB.
  static constexpr int64_t kMostTokens = int64_t{1} << 27;

  // Takes note of a request and returns it answered: with an empty text, the first of its choices,
  // the JSON null where a schema asks for JSON, or zeros where it scores or embeds. OutOfRange
  // where the generator would refuse the prompt for its length, or beyond kMostTokens.
  absl::StatusOr<std::shared_ptr<Request>> Take(const std::shared_ptr<Generator>& generator,
                                                RequestSpec spec);

  // From now on up to `count` of each generator's requests are kept as they are, so that some of
  // them can be tried: a random sample, in which each request is as likely to be as any other.
  void set_sample(size_t count) { sample_ = count; }

  struct Totals {
    std::shared_ptr<Generator> generator;
    int64_t requests = 0;
    int64_t prompts = 0;        // different ones, see Prompt::kind; equal ones are generated once
    int64_t tokens = 0;         // of the different prompts
    int64_t tokens_shared = 0;  // of `tokens`, in a prefix that a prompt before has too
    int64_t tokens_stored = 0;  // of the others, in a prefix that the prefix store has
    double positions = 0;       // that the tokens left to compute see: PositionsOf
    int64_t most_answer_tokens = 0;
    // Of choices that are only weighed, not counted above: an answer has them (tokens_out), and
    // they take no decode step.
    int64_t most_chosen_tokens = 0;
    double most_answer_positions = 0;  // that the most_answer_tokens see
    double most_answer_reads = 0;      // as many, but in no prefix that a prompt before has too
    int64_t answers = 0;               // different prompts whose answers take more than a prefill
    int64_t free_answers = 0;          // of `answers`, without a constraint
    int64_t most_free_answer_tokens = 0;
    bool guessed = false;  // a model elsewhere: its tokens are taken to have four bytes each
    std::vector<RequestSpec> sample = {};

    int64_t most_tokens_out() const { return most_answer_tokens + most_chosen_tokens; }
  };
  // A row for each generator asked, in that order.
  std::vector<Totals> Count() const;
  bool empty() const { return parts_.empty(); }

 private:
  struct Prompt {
    int64_t begin = 0;  // of tokens
    int64_t end = 0;
    int32_t max_tokens = 0;  // of its answer
    int32_t chosen_tokens = 0;
    int32_t answers = 1;     // a vote has several
    bool free = false;       // they follow no constraint
    AdapterSet adapters = {};
    // By what it is asked for: equal tokens of one kind are one prompt, as they are to the memo.
    // What that does not remember has a kind of its own.
    int64_t kind = 0;
  };
  struct Choices {
    std::string json = "";
    std::string first = "";
    int32_t most_tokens = 0;  // of any of them
  };
  struct Part {
    std::shared_ptr<Generator> generator;
    std::vector<int32_t> tokens;
    std::vector<Prompt> prompts;
    Choices choices;  // the last ones asked for
    HashMap<std::string, int64_t> kinds = {};  // by MemoKey, without what the prompts tell
    std::string salt = "";
    bool guessed = false;
    std::vector<RequestSpec> sample = {};
  };
  static int64_t KindOf(const std::optional<MemoKey>& key, Part* part);
  void Keep(const RequestSpec& spec, Part* part) const;
  static Totals Count(const Part& part);
  static Choices ReadChoices(const std::string& json, const Tokenizer* tokenizer);
  // The text of an answer, and the most tokens that it may have.
  static int32_t Answer(const RequestSpec& spec, Part* part, std::string* text);
  static int32_t ChosenTokens(const RequestSpec& spec, Part* part);

  std::vector<Part> parts_;
  int64_t num_tokens_ = 0;
  size_t sample_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_PROMPT_TALLY_H_
