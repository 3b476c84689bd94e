// Session: one client's way to a generator, through the client's part of the memo. The SQL
// functions and the C API are both thin over this.
//
//   Session session(std::make_shared<LocalGenerator>(engine), salt);
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, session.Submit(prompt, system, options));
#ifndef LM_ENGINE_RUNTIME_SESSION_H_
#define LM_ENGINE_RUNTIME_SESSION_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/runtime/generator.h"
#include "engine/runtime/memo.h"
#include "engine/runtime/prompt_tally.h"

namespace lm {

// Thread-safe; a value type.
class Session {
 public:
  // `salt` names the prefix cache this client shares with others of the same salt; `memo` says
  // whose part of the process's memo it uses: by default none.
  Session(std::shared_ptr<Generator> generator, std::string salt,
          std::optional<MemoAccess> memo = std::nullopt);

  // Queues the request (its salt is the session's), unless the memo has the answer or an equal
  // request is under way. Errors: those of Generator::Prepare and Submit.
  absl::StatusOr<std::shared_ptr<Request>> Submit(TextRequest request) const;
  // A generation.
  absl::StatusOr<std::shared_ptr<Request>> Submit(absl::string_view prompt,
                                                  absl::string_view system,
                                                  const GenerationOptions& options) const {
    return Submit({.prompt = prompt, .system = system, .options = options});
  }

  // From now on Submit only takes note of what would be asked, and answers at once.
  // REQUIRES: *tally outlives this and its copies.
  void set_tally(PromptTally* tally) { tally_ = tally; }

  bool only_counts() const { return tally_ != nullptr; }

  // Submit sets it to whether what it was asked for last is something that the model was not made
  // for (Purpose::Covers).
  void set_strayed(std::shared_ptr<std::atomic<bool>> strayed) { strayed_ = std::move(strayed); }

  const Generator& generator() const { return *generator_; }

 private:
  void NotePurpose(const TextRequest& request) const;

  std::shared_ptr<Generator> generator_;
  PromptTally* tally_ = nullptr;                // null: requests are made
  std::shared_ptr<std::atomic<bool>> strayed_;  // may be null
  std::string salt_;
  std::optional<MemoAccess> memo_;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SESSION_H_
