// LocalGenerator: the generator over an engine of this process.
#ifndef LM_ENGINE_RUNTIME_LOCAL_GENERATOR_H_
#define LM_ENGINE_RUNTIME_LOCAL_GENERATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/generator.h"
#include "engine/text/chat/chat_template.h"

namespace lm {

class LocalGenerator : public Generator {
 public:
  explicit LocalGenerator(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  const ModelInfo& info() const override { return engine_->model().info(); }
  std::string identity() const override { return WithSettings(info().identity); }
  absl::StatusOr<std::string> lasting_identity() const override;
  absl::StatusOr<std::string> digest() const override { return engine_->model().digest().Get(); }
  absl::StatusOr<std::string> DigestFor(const GenerationOptions& options) const override;
  int32_t max_sequence_tokens() const override { return engine_->max_sequence_tokens(); }
  absl::StatusOr<RequestSpec> Prepare(const TextRequest& request) const override;
  absl::StatusOr<std::string> Render(const TextRequest& request) const override;
  absl::StatusOr<int64_t> CountTokens(const TextRequest& request) const override;
  absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener = nullptr) override {
    return engine_->Submit(std::move(spec), std::move(listener));
  }
  absl::Status Validate(const RequestSpec& spec) const override { return engine_->Validate(spec); }
  absl::StatusOr<AdapterSet> AdaptersOf(const GenerationOptions& options) const override;
  absl::Status CheckConstraint(const GenerationOptions& options) const override {
    return engine_->CheckConstraint(options);
  }
  bool CanBeAnswer(const RequestSpec& spec, const RememberedAnswer& answer) const override;
  absl::StatusOr<const Tokenizer*> tokenizer() const override {
    return &engine_->model().tokenizer();
  }
  const std::shared_ptr<Engine>& engine() const override { return engine_; }

 private:
  // A prompt as the model reads it.
  struct Prompt {
    std::vector<int32_t> tokens;
    std::string text;          // RequestSpec::text
    std::string template_end;  // RequestSpec::template_end
    std::vector<int32_t> begun;  // RequestSpec::begun
  };
  // What else of the model than its contents, its device and the request's an answer depends on;
  // empty where all is as it is unless said otherwise.
  std::string Settings() const;
  // The name of the model's contents, with the device and the settings.
  std::string WithSettings(absl::string_view name) const;
  std::optional<int32_t> ReasoningTokens(const GenerationOptions& options,
                                         const Prompt& prompt) const;
  absl::StatusOr<Prompt> Encode(absl::Span<const ChatMessage> messages,
                                const GenerationOptions& options,
                                absl::string_view begun = "") const;
  absl::StatusOr<Prompt> Truncate(const TextRequest& request, Prompt prompt) const;
  absl::StatusOr<std::vector<int32_t>> FindBorders(absl::Span<const int32_t> tokens,
                                                   std::vector<ChatMessage> messages,
                                                   const GenerationOptions& options) const;
  absl::StatusOr<RequestSpec> PrepareChat(const TextRequest& request) const;
  absl::StatusOr<RequestSpec> PrepareText(const TextRequest& request) const;
  absl::StatusOr<RequestSpec> PreparePair(const TextRequest& request) const;

  const std::shared_ptr<Engine> engine_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_LOCAL_GENERATOR_H_
