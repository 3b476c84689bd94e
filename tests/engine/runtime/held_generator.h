// HeldGenerator: one that answers when a test says so.
//
//   HeldGenerator generator;
//   ...                          // somebody asks it, by Submit()
//   generator.Say(0, "yes");     // the first that was asked has its answer
#ifndef LM_TESTS_ENGINE_RUNTIME_HELD_GENERATOR_H_
#define LM_TESTS_ENGINE_RUNTIME_HELD_GENERATOR_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/generator.h"

namespace lm {

// Not thread-safe.
class HeldGenerator : public Generator {
 public:
  const ModelInfo& info() const override { return info_; }
  std::string identity() const override { return "held"; }
  int32_t max_sequence_tokens() const override { return 1000; }
  absl::StatusOr<RequestSpec> Prepare(const TextRequest& request) const override {
    return RequestSpec{.text = std::string(request.prompt), .options = request.options};
  }
  absl::StatusOr<std::string> Render(const TextRequest&) const override { return ""; }
  absl::StatusOr<int64_t> CountTokens(const TextRequest&) const override { return 0; }
  absl::StatusOr<std::shared_ptr<Request>> Submit(
      RequestSpec spec, std::shared_ptr<RequestListener> listener) override {
    if (asked.size() == room) return absl::ResourceExhaustedError("full");
    asked.push_back(std::make_shared<Request>(std::move(spec)));
    asked.back()->set_listener(std::move(listener));
    return asked.back();
  }
  absl::Status Validate(const RequestSpec&) const override { return absl::OkStatus(); }
  absl::StatusOr<AdapterSet> AdaptersOf(const GenerationOptions&) const override {
    return AdapterSet();
  }
  absl::Status CheckConstraint(const GenerationOptions&) const override { return absl::OkStatus(); }
  bool CanBeAnswer(const RequestSpec&, const RememberedAnswer&) const override { return true; }
  absl::StatusOr<const Tokenizer*> tokenizer() const override { return nullptr; }
  const std::shared_ptr<Engine>& engine() const override { return engine_; }

  void Say(size_t i, const std::string& text) {
    asked[i]->Finish({.text = text,
                      .finish = FinishReason::kStop,
                      .tokens_in = 10,
                      .tokens_cached = 8,
                      .tokens_out = 2});
  }

  std::vector<std::shared_ptr<Request>> asked;
  size_t room = 100;  // requests that it takes; ResourceExhausted to those behind them

 private:
  ModelInfo info_;
  std::shared_ptr<Engine> engine_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_RUNTIME_HELD_GENERATOR_H_
