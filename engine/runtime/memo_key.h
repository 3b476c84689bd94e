// MemoKey: everything that an answer depends on. Generations with equal keys have the same answer,
// byte for byte; embeddings and scores of rerankers, the same numbers.
#ifndef LM_ENGINE_RUNTIME_MEMO_KEY_H_
#define LM_ENGINE_RUNTIME_MEMO_KEY_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "absl/types/span.h"
#include "engine/base/json.h"
#include "engine/model/model.h"
#include "engine/runtime/request.h"

namespace lm {

class Generator;

struct MemoKey {
  std::string owner = {};    // who may know of it: a salt, or a file that keeps it
  std::string model = {};    // Generator::identity; of a file's, Generator::lasting_identity
  std::string options = {};  // JSON: those that matter; of a vector, what is made: "embed", "rank"
  // RequestSpec::text; of a text that is embedded, a JSON array of it alone.
  std::string prompt = {};

  int64_t bytes() const;  // memory it takes

  auto Tie() const { return std::tie(owner, model, options, prompt); }
  friend bool operator==(const MemoKey& a, const MemoKey& b) { return a.Tie() == b.Tie(); }
  template <typename H>
  friend H AbslHashValue(H h, const MemoKey& key) {
    return H::combine(std::move(h), key.Tie());
  }
};

// The options that change an answer, as JSON: without the model, those that a request has in its
// prompt or its adapters (examples, messages, template_args, on_overflow, lora), and those that
// only say how it is asked.
Json OptionsOfAnswer(const GenerationOptions& options);

// Whether what is generated so may be remembered: not with {"cache": false}. At any temperature an
// answer is a function of the prompt and the options, the seed among them.
bool Memoizable(const GenerationOptions& options);

// nullopt for a request that is not memoizable, or wants more than is remembered of an answer. With
// `lasting` it is the same in every process: errors of Generator::lasting_identity.
absl::StatusOr<std::optional<MemoKey>> MakeMemoKey(const Generator& generator,
                                                   const RequestSpec& spec,
                                                   const std::string& owner, bool lasting);
// The same of the generator of that identity and with these adapters, whose context is long enough
// for any answer; nullopt for what embeds.
std::optional<MemoKey> MakeMemoKey(const std::string& identity, const RequestSpec& spec,
                                   const std::string& owner,
                                   absl::Span<const AdapterInfo> adapters = {});

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_MEMO_KEY_H_
