// SessionCase: tests that ask a scripted model as users do, with text and options.
#ifndef LM_TESTS_ENGINE_RUNTIME_SESSION_CASE_H_
#define LM_TESTS_ENGINE_RUNTIME_SESSION_CASE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/runtime/local_generator.h"
#include "engine/runtime/session.h"
#include "tests/engine/runtime/scripted_model.h"

namespace lm {

// Of a model that reasons between these marks.
inline constexpr char kReasons[] = "{# <think> #}{{ messages[0].content }}";

class SessionCase : public testing::Test {
 protected:
  void Start(const std::string& chat_template = "") {
    auto engine = Engine::Start(MakeScriptedModel(script_, chat_template), {});
    session_.emplace(std::make_shared<LocalGenerator>(*std::move(engine)), "salt");
  }
  Generation Ask(const std::string& prompt, const std::string& system,
                 const GenerationOptions& options = {}) {
    auto request = session_->Submit(prompt, system, options);
    EXPECT_TRUE(request.ok()) << request.status();
    if (!request.ok()) return {.status = request.status()};
    asked_ = (*request)->spec().prompt;
    return Await(*request);
  }
  absl::StatusOr<std::string> Render(const std::string& prompt, const std::string& system,
                                     const GenerationOptions& options = {}) const {
    return session_->generator().Render({.prompt = prompt, .system = system, .options = options});
  }
  std::vector<int32_t> Tokens(const std::string& prompt, const std::string& system,
                              const GenerationOptions& options = {}) const {
    const TextRequest request{.prompt = prompt, .system = system, .options = options};
    std::vector<int32_t> tokens = session_->generator().Prepare(request).value().prompt;
    EXPECT_EQ(session_->generator().CountTokens(request).value(), tokens.size());
    return tokens;
  }
  absl::StatusOr<std::shared_ptr<Request>> Choose(const std::string& text,
                                                  const std::string& question,
                                                  const GenerationOptions& options) const {
    return session_->Submit(
        {.task = Task::kChoose, .prompt = text, .question = question, .options = options});
  }
  std::string Asked() const {
    std::string text;
    for (int32_t token : asked_) {
      const absl::string_view bytes = (*session_->generator().tokenizer())->TokenBytes(token);
      text.append(bytes.data(), bytes.size());
    }
    return text;
  }

  std::shared_ptr<Script> script_ = std::make_shared<Script>();
  std::optional<Session> session_;
  std::vector<int32_t> asked_;
};

}  // namespace lm

#endif  // LM_TESTS_ENGINE_RUNTIME_SESSION_CASE_H_
