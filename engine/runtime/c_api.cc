// The C API of include/lm/lm.h, over Session. No exception and no C++ type crosses it.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "engine/base/default_rounding.h"
#include "engine/base/json.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/status_macros.h"
#include "engine/base/utf8.h"
#include "engine/runtime/generator_registry.h"
#include "engine/runtime/session.h"
#include "engine/runtime/submit_ahead.h"
#include "lm/lm.h"

struct lm_error {
  std::string message;
};

struct lm_engine {
  lm::Session session;
  std::string salt;  // the session's
};

namespace {

using lm::Generation;
using lm::GenerationOptions;
using lm::ModelOptions;
using lm::Request;

// The error where there is no memory for one; lm_error_free leaves it alone.
const lm_error& OutOfMemoryError() {
  static const lm_error* const error = new lm_error{"out of memory"};
  return *error;
}
const lm_error& made_at_load = OutOfMemoryError();

void SetError(const absl::Status& status, lm_error** error) noexcept {
  if (error == nullptr) return;
  try {
    *error = new lm_error{std::string(status.message())};
  } catch (...) {
    *error = const_cast<lm_error*>(&made_at_load);
  }
}

// What `body` returns, a StatusOr<T>; an exception becomes a status.
template <typename T, typename Body>
absl::StatusOr<T> Caught(Body body) noexcept {
  lm::ReadyToThrow();
  const lm::DefaultRounding rounding;
  try {
    return body();
  } catch (...) {
    return lm::CurrentExceptionAsStatus();
  }
}

// Runs `body`, which returns a StatusOr<T>; on failure sets *error and returns `failed`.
template <typename T, typename Body>
T Guarded(lm_error** error, T failed, Body body) noexcept {
  absl::StatusOr<T> result = Caught<T>(std::move(body));
  if (result.ok()) return *std::move(result);
  SetError(result.status(), error);
  return failed;
}

char* CopyString(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy != nullptr) std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

absl::Status CheckGiven(const void* argument, const char* name) {
  if (argument != nullptr) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must not be NULL"));
}

absl::StatusOr<absl::string_view> Text(const char* text, const char* what) {
  RETURN_IF_ERROR(CheckGiven(text, what));
  absl::string_view view(text);
  size_t valid = lm::ValidUtf8Prefix(view);
  if (valid != view.size()) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is not valid UTF-8 at byte ", valid));
  }
  return view;
}

// Of statements, and of connections to databases: there are none here.
constexpr absl::string_view kOfSql[] = {"model",    "max_total_tokens", "max_seconds",
                                        "max_cost", "on_error",         "cache"};

absl::StatusOr<GenerationOptions> ParseOptions(const char* text) {
  GenerationOptions options;
  if (text == nullptr) return options;
  RETURN_IF_ERROR(lm::ParseGenerationOptions(text, &options));
  const std::optional<lm::Json> object = lm::Json::Parse(text);
  for (absl::string_view name : kOfSql) {
    if (!object.has_value() || !object->Has(std::string(name))) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("option '", name,
                     "' is for SQL: an lm_engine has one model, no statements "
                     "and no memo"));
  }
  return options;
}

absl::Status CheckEngine(const lm_engine* engine) { return CheckGiven(engine, "engine"); }

absl::StatusOr<std::shared_ptr<Request>> Submit(lm_engine* engine, const char* prompt,
                                                const char* system,
                                                const GenerationOptions& options) {
  ASSIGN_OR_RETURN(absl::string_view prompt_text, Text(prompt, "prompt"));
  absl::string_view system_text;
  if (system != nullptr) {
    ASSIGN_OR_RETURN(system_text, Text(system, "system"));
  }
  return engine->session.Submit(prompt_text, system_text, options);
}

absl::StatusOr<char*> Answer(Request& request) {
  request.WaitFor(absl::InfiniteDuration());
  const Generation& result = request.result();
  RETURN_IF_ERROR(result.status);
  char* copy = CopyString(result.text);
  if (copy == nullptr) return lm::OutOfMemory();
  return copy;
}

}  // namespace

extern "C" {

const char* lm_version(void) { return LM_VERSION; }

lm_engine* lm_engine_open(const char* path, const char* options, lm_error** error) {
  return Guarded<lm_engine*>(error, nullptr, [&]() -> absl::StatusOr<lm_engine*> {
    static std::atomic<uint64_t> handles{0};
    if (path == nullptr) return absl::InvalidArgumentError("path must not be NULL");
    ModelOptions model_options;
    if (options != nullptr) RETURN_IF_ERROR(lm::ParseModelOptions(options, &model_options));
    ASSIGN_OR_RETURN(std::shared_ptr<lm::Generator> generator,
                     lm::GetGenerator(path, model_options));
    const std::string salt = absl::StrCat("lm.h/", ++handles);
    return new lm_engine{lm::Session(std::move(generator), salt), salt};
  });
}

void lm_engine_close(lm_engine* engine) {
  if (engine == nullptr) return;
  lm::ForgetSalt(engine->salt);
  delete engine;
}

char* lm_generate(lm_engine* engine, const char* prompt, const char* system, const char* options,
                  lm_error** error) {
  return Guarded<char*>(error, nullptr, [&]() -> absl::StatusOr<char*> {
    RETURN_IF_ERROR(CheckEngine(engine));
    ASSIGN_OR_RETURN(GenerationOptions parsed, ParseOptions(options));
    ASSIGN_OR_RETURN(std::shared_ptr<Request> request, Submit(engine, prompt, system, parsed));
    return Answer(*request);
  });
}

int lm_generate_batch(lm_engine* engine, const char* const* prompts, size_t num_prompts,
                      const char* system, const char* options, char** answers, lm_error** error) {
  if (answers != nullptr) std::fill_n(answers, num_prompts, nullptr);
  return Guarded<int>(error, -1, [&]() -> absl::StatusOr<int> {
    RETURN_IF_ERROR(CheckEngine(engine));
    if (num_prompts > 0) {
      RETURN_IF_ERROR(CheckGiven(prompts, "prompts"));
      RETURN_IF_ERROR(CheckGiven(answers, "answers"));
    }
    ASSIGN_OR_RETURN(GenerationOptions parsed, ParseOptions(options));
    int failures = 0;
    auto submit = [&](size_t i) {
      return Caught<std::shared_ptr<Request>>(
          [&] { return Submit(engine, prompts[i], system, parsed); });
    };
    lm::SubmitAhead(
        num_prompts, submit, [&](size_t i, absl::StatusOr<std::shared_ptr<Request>> request) {
          const absl::StatusOr<char*> answer = Caught<char*>([&]() -> absl::StatusOr<char*> {
            RETURN_IF_ERROR(request.status());
            return Answer(**request);
          });
          if (answer.ok()) {
            answers[i] = *answer;
          } else if (failures++ == 0) {
            SetError(answer.status(), error);
          }
        });
    return failures;
  });
}

int64_t lm_tokenize(lm_engine* engine, const char* text, int32_t* tokens, size_t capacity,
                    lm_error** error) {
  return Guarded<int64_t>(error, -1, [&]() -> absl::StatusOr<int64_t> {
    RETURN_IF_ERROR(CheckEngine(engine));
    ASSIGN_OR_RETURN(absl::string_view view, Text(text, "text"));
    ASSIGN_OR_RETURN(const lm::Tokenizer* tokenizer, engine->session.generator().tokenizer());
    ASSIGN_OR_RETURN(std::vector<int32_t> ids, tokenizer->EncodePlain(view));
    if (capacity > 0) RETURN_IF_ERROR(CheckGiven(tokens, "tokens"));
    std::copy_n(ids.begin(), std::min(capacity, ids.size()), tokens);
    return static_cast<int64_t>(ids.size());
  });
}

const char* lm_error_message(const lm_error* error) {
  return error != nullptr ? error->message.c_str() : "";
}
void lm_error_free(lm_error* error) {
  if (error != &made_at_load) delete error;
}
void lm_string_free(char* string) { std::free(string); }

}  // extern "C"
