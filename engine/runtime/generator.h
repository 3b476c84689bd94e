// Generator: what answers. Text goes in and requests come out; how the text is rendered and read,
// and where it is computed, is the generator's own affair. LocalGenerator is the one over an engine
// of this process.
//
//   ASSIGN_OR_RETURN(RequestSpec spec, generator.Prepare({.prompt = "Name a colour."}));
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, generator.Submit(std::move(spec)));
//   request->WaitFor(absl::InfiniteDuration());
//
// The layers above (sessions, memo, look-ahead, jobs, tables) know nothing else of what answers.
#ifndef LM_ENGINE_RUNTIME_GENERATOR_H_
#define LM_ENGINE_RUNTIME_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/model.h"
#include "engine/runtime/generation_options.h"
#include "engine/runtime/memo_scan.h"
#include "engine/runtime/remembered_answer.h"
#include "engine/runtime/request.h"

namespace lm {

class Engine;

enum class Task {
  kGenerate,
  kChoose,  // kGenerate, with Generation::first_choices
  kWeigh,   // kGenerate, with the probability of the answer (RequestSpec::wants_probability)
  kEmbed,   // Generation::embedding of the prompt, a plain text without a template
  kRank,    // likewise, the scores of how well the prompt answers `question`
  kScore,   // Generation::prompt_logprobs of the prompt, likewise
  // What the prompt leaves in the cache is stored (RequestSpec::store). Without a prompt: what all
  // prompts behind the system prompt begin with. The answer, of a token, is of no use.
  kPrefill,
};

// What is asked, as text. The views outlive the call that they are given to.
struct TextRequest {
  Task task = Task::kGenerate;
  // A user's message; with GenerationOptions::messages a JSON array of messages, each an object
  // with a role and a content, that come behind the system prompt.
  absl::string_view prompt = {};
  absl::string_view question = {};  // stands behind the prompt, and stays where that is cut
                                    // (kRank: how the model has it)
  absl::string_view system = {};    // kEmbed: stands right before the prompt, and stays likewise
  // Of the question and the system prompt, the caller's own words, where there are words of ours
  // beside them; nullopt: all of both. For Purpose::Covers alone.
  std::optional<absl::string_view> asked = {};
  // kGenerate, kChoose: how the answer begins that the model goes on with.
  absl::string_view begun = {};
  // Its examples go before the prompt, each with the question behind it; the other tasks than
  // kGenerate, kChoose and kWeigh have none.
  GenerationOptions options = {};
  // kEmbed; nullopt: as the model's file says, else the mean.
  std::optional<Pooling> pooling = {};
  bool stream = false;          // kGenerate: as RequestSpec::stream
  bool wants_logprob = false;   // with it: as RequestSpec::wants_logprob
  absl::string_view salt = {};  // whose prefix cache
  std::shared_ptr<MemoScan> scan = {};  // MemoAccess::scan
};

// Thread-safe.
class Generator {
 public:
  virtual ~Generator() = default;

  // Why its servers are not known yet, with a Trouble; OK where they are, or there are none. Every
  // request ends with that, and who wants another answer asks for the generator anew. What else
  // it says of the model is what is known without them.
  virtual absl::Status absence() const { return absl::OkStatus(); }

  // Of the model, as lm_models shows it.
  virtual const ModelInfo& info() const = 0;
  // What an answer depends on besides the request, in this process: MemoKey::model.
  virtual std::string identity() const = 0;
  // The same in every process; and a name for the model alone. Either may take a pass over the
  // model's files, once; errors: those of ContentDigest::Get.
  virtual absl::StatusOr<std::string> lasting_identity() const { return identity(); }
  virtual absl::StatusOr<std::string> digest() const { return info().identity; }
  // The digest, and behind it what else of the model's own options an answer to such a request
  // depends on, but for the device; the digest alone where none of them was given. Errors: those of
  // digest() and AdaptersOf().
  virtual absl::StatusOr<std::string> DigestFor(const GenerationOptions&) const { return digest(); }
  // The longest sequence, prompt and answer together.
  virtual int32_t max_sequence_tokens() const = 0;
  // So many requests are worth being under way: several times what it works on together, so that a
  // long answer at their front does not leave it idle.
  static constexpr size_t kMostUnderWay = 256;
  virtual size_t most_under_way() const { return kMostUnderWay; }

  // Reads the text: renders the chat template, encodes, applies on_overflow; no work is begun.
  // InvalidArgument for messages that are none (named), a system message beside `system`, or what
  // the template or the tokenizer refuses; OutOfRange, with both numbers, for a prompt that does
  // not fit.
  //
  // on_overflow = truncate_start or truncate_end takes whole tokens off that end of `prompt`; the
  // system prompt, the question and the template's words stay (OutOfRange where they alone are too
  // long). It happens only to a prompt that does not fit, and leaves room for max_tokens, up to
  // half of the context. A model elsewhere whose tokens are not known here has it cut, by whole
  // characters, once its server has refused the prompt.
  virtual absl::StatusOr<RequestSpec> Prepare(const TextRequest& request) const = 0;

  // The prompt as one string, control tokens spelled out.
  virtual absl::StatusOr<std::string> Render(const TextRequest& request) const = 0;
  // The tokens of the prompt as Prepare makes it, BOS and template included, before on_overflow;
  // an estimate where the tokenizer is elsewhere. Of a plain text (kScore, kEmbed) never that:
  // its tokenizer is asked, wherever it is (Cancelled where the thread's scope, checkpoint.h, is
  // interrupted meanwhile), or FailedPrecondition says by how many it is guessed.
  virtual absl::StatusOr<int64_t> CountTokens(const TextRequest& request) const = 0;

  // Queues what Prepare made. `listener`, which may be null, is told of the request's fate.
  // ResourceExhausted where too many wait; what else is wrong with the request; FailedPrecondition
  // where nothing is answered any more.
  virtual absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener = nullptr) = 0;
  // The errors of Submit that depend on the request alone.
  virtual absl::Status Validate(const RequestSpec& spec) const = 0;
  // The adapters that options.lora chooses, or the model's own choice. InvalidArgument for a name
  // that the model has none of, with those that it has.
  virtual absl::StatusOr<AdapterSet> AdaptersOf(const GenerationOptions& options) const = 0;
  // InvalidArgument where the options' constraint, if any, does not compile.
  virtual absl::Status CheckConstraint(const GenerationOptions& options) const = 0;
  // Whether it can have given `answer` to `spec`. The answer may be from a file, and so be forged.
  virtual bool CanBeAnswer(const RequestSpec& spec, const RememberedAnswer& answer) const = 0;

  // The model's own tokens, to ask for tokens by number, or to cut a text between them;
  // FailedPrecondition where they are not known here.
  virtual absl::StatusOr<const Tokenizer*> tokenizer() const = 0;
  // The engine of this process that does the work; null where it is done elsewhere.
  virtual const std::shared_ptr<Engine>& engine() const = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_GENERATOR_H_
