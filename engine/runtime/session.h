// Session: one client's way to an engine. Text goes in, requests come out; the SQL functions and
// the C API are both thin over this.
//
//   Session session(engine, salt);
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, session.Submit(prompt, system, options));
#ifndef LM_ENGINE_RUNTIME_SESSION_H_
#define LM_ENGINE_RUNTIME_SESSION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/memo.h"
#include "engine/runtime/prompt_tally.h"
#include "engine/text/chat_template.h"

namespace lm {

// Thread-safe; a value type.
class Session {
 public:
  // `salt` names the prefix cache this client shares with others of the same salt; `memo` says
  // whose part of the process's memo it uses: by default none.
  Session(std::shared_ptr<Engine> engine, std::string salt,
          std::optional<MemoAccess> memo = std::nullopt);

  // The prompt is a user's message; with GenerationOptions::messages a JSON array of messages, each
  // an object with a role and a content, that come behind the system prompt (InvalidArgument where
  // it is not, or has a system message beside `system`).
  //
  // Renders the chat template, encodes, applies on_overflow, and queues, unless the memo has the
  // answer or somebody else waits for it already. Errors: those of ChatTemplate::Render,
  // Tokenizer::Encode and Engine::Submit; an overflow names the prompt's tokens and the context's.
  //
  // on_overflow = truncate_start or truncate_end takes whole tokens off that end of `prompt`; the
  // system prompt and the template's words stay (OutOfRange where they alone are too long). It
  // happens only to a prompt that does not fit, and leaves room for max_tokens, up to half of the
  // context. `stream`: as RequestSpec::stream.
  absl::StatusOr<std::shared_ptr<Request>> Submit(absl::string_view prompt,
                                                  absl::string_view system,
                                                  const GenerationOptions& options,
                                                  bool stream = false) const;

  // The same for who wants Generation::first_choices of a question that stands behind a text: with
  // on_overflow the text is cut, never the question. Options of sampling change nothing.
  absl::StatusOr<std::shared_ptr<Request>> SubmitChoice(absl::string_view text,
                                                        absl::string_view question,
                                                        absl::string_view system,
                                                        const GenerationOptions& options) const;

  // Queues the embedding of a plain text (no template); at least one token. Of `options`
  // on_overflow and timeout_ms count; truncation takes tokens off the text until it fits.
  absl::StatusOr<std::shared_ptr<Request>> SubmitEmbedding(absl::string_view text, Pooling pooling,
                                                           const GenerationOptions& options) const;

  // Queues the scoring of a plain text (no template); at least one token.
  absl::StatusOr<std::shared_ptr<Request>> SubmitScoring(absl::string_view text) const;

  // The rendered prompt as one string, control tokens spelled out. Of `options` here and below,
  // template_args count. A template that asks for the date is given today's.
  absl::StatusOr<std::string> Render(absl::string_view prompt, absl::string_view system,
                                     const GenerationOptions& options) const;
  // The tokens Submit would feed the model, BOS included.
  absl::StatusOr<std::vector<int32_t>> EncodePrompt(absl::string_view prompt,
                                                    absl::string_view system,
                                                    const GenerationOptions& options) const;

  // From now on Submit and its sisters only take note of what would be asked, and answer at once.
  // REQUIRES: *tally outlives this and its copies.
  void set_tally(PromptTally* tally) { tally_ = tally; }

  const Engine& engine() const { return *engine_; }
  const Model& model() const { return engine_->model(); }

 private:
  absl::StatusOr<std::vector<int32_t>> FindBorders(absl::Span<const int32_t> tokens,
                                                   std::vector<ChatMessage> messages,
                                                   const GenerationOptions& options) const;
  // `suffix` goes behind the prompt and stays where that is cut.
  absl::StatusOr<RequestSpec> MakeSpec(absl::string_view prompt, absl::string_view suffix,
                                       absl::string_view system,
                                       const GenerationOptions& options) const;
  absl::Status Truncate(absl::string_view prompt, absl::string_view suffix,
                        absl::string_view system, const GenerationOptions& options,
                        std::vector<int32_t>* tokens) const;

  absl::StatusOr<RenderedChat> RenderChat(absl::Span<const ChatMessage> messages,
                                          const GenerationOptions& options) const;
  absl::StatusOr<std::vector<int32_t>> EncodeChat(absl::Span<const ChatMessage> messages,
                                                  const GenerationOptions& options) const;

  absl::StatusOr<std::shared_ptr<Request>> Queue(RequestSpec spec) const;

  std::shared_ptr<Engine> engine_;
  PromptTally* tally_ = nullptr;  // null: requests are made
  std::string salt_;
  std::optional<MemoAccess> memo_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SESSION_H_
