// Drafter guesses how texts go on, so that a step of the model can check several tokens of an
// answer at once. A guess decides how soon an answer is there, never what it is.
#ifndef LM_ENGINE_RUNTIME_DRAFTER_H_
#define LM_ENGINE_RUNTIME_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/model/language_model.h"

namespace lm {

struct BlockTable;

// What a drafter keeps with a sequence.
class DraftMemory {
 public:
  virtual ~DraftMemory() = default;
};

// How a text may go on.
struct Draft {
  std::vector<int32_t> tokens = {};
  std::vector<float> margins = {};  // how sure each token is (MarginOf); empty: not known
  // How good the first token's reasons are: a number that tells guesses of one kind from others,
  // below kDraftKinds. DraftOdds finds out what each is worth. That of the token i behind it is
  // kind + i, at most last_kind.
  int32_t kind = 0;
  int32_t last_kind = 0;
};
inline constexpr int32_t kDraftKinds = 48;

// A text that is asked about.
struct DraftRow {
  absl::string_view salt = {};             // the text helps to guess texts of this salt alone
  absl::Span<const int32_t> tokens = {};   // prompt and answer so far
  absl::Span<const int32_t> context = {};  // `tokens`, and behind them those guessed already
  int32_t most = 0;                        // tokens behind the context that are of use
  const BlockTable* blocks = nullptr;      // where the model keeps what it has of the text
  std::unique_ptr<DraftMemory>* memory = nullptr;  // the drafter's own, null at first
  Draft draft = {};                                // the answer: at most `most` tokens, maybe none
};

// Not thread-safe.
class Drafter {
 public:
  virtual ~Drafter() = default;
  // Fills in the drafts of the rows.
  virtual void Propose(absl::Span<DraftRow> rows) = 0;
  // An answer is there: tokens[prompt_tokens, ..) of them.
  virtual void Learn(absl::string_view salt, absl::Span<const int32_t> tokens,
                     int32_t prompt_tokens) = 0;
};

// One that computes, in steps of its own. Its drafts are what it finds most probable; of kind
// kFirstKind the first token of each.
class ModelDrafter {
 public:
  static constexpr int32_t kFirstKind = 17;  // behind the kinds of PromptLookup
  static constexpr int32_t kMostGuessed = 8;
  // Kinds by how sure the model is: kMarginKinds of a draft's first token, and as many of the
  // others. Of powers of two, from an eighth of a nat to eight.
  static constexpr int32_t kMarginKinds = 8;
  static constexpr int32_t kFirstMarginKind = kFirstKind + kMostGuessed;
  static_assert(kFirstMarginKind + 2 * kMarginKinds <= kDraftKinds);

  virtual ~ModelDrafter() = default;
  // Fills in the drafts of the rows: as many tokens as each may have, or until a further one is not
  // `worth` its time. `*cache_ops` are the operations that the next step of the engine's model is
  // to do; those that are done here are taken off.
  virtual void Propose(absl::Span<DraftRow> rows, absl::FunctionRef<bool(const DraftRow&)> worth,
                       std::vector<CacheOp>* cache_ops) = 0;

  // Whether the drafter uses the hidden states that the engine's model has where tokens are
  // sampled; and such a state, at `position` of the text.
  virtual bool observes() const { return false; }
  virtual void Observe(int32_t position, absl::Span<const float> hidden,
                       std::unique_ptr<DraftMemory>* memory) const {
    (void)position, (void)hidden, (void)memory;
  }

  // What is cached for a salt that will not ask again goes first.
  virtual void Forget(absl::string_view salt) { (void)salt; }

  // The seconds that one more token of each of `rows` rows takes; 0: not known.
  virtual double StepSeconds(int32_t rows) const = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_DRAFTER_H_
