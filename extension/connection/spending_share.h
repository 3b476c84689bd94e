// SpendingShare: what one request may take at most of its statement's budgets (spending.h), set
// aside before the request is made. What the request has not taken is given back.
//
//   auto submit = [&](const Session& session) { return session.Submit({...}); };
//   ASSIGN_OR_RETURN(SpendingShare share, SpendingShare::Take(options, submit));
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, submit(options.session()));
//   ...
//   share.Settle(request->result());
#ifndef LM_EXTENSION_CONNECTION_SPENDING_SHARE_H_
#define LM_EXTENSION_CONNECTION_SPENDING_SHARE_H_

#include <cstdint>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "extension/connection/call_options.h"
#include "extension/connection/spending.h"

namespace lm {

// Not thread-safe. A share is settled once; one that is destroyed before is abandoned.
class SpendingShare {
 public:
  // The share of a request without a budget: nothing is set aside, and settling does nothing.
  SpendingShare() = default;

  // Of a request with these options. `submit` makes the request of a session; here of one that only
  // counts. FailedPrecondition where one of the budgets has not that much left. A request that is
  // refused, as it will be again, has an empty share.
  static absl::StatusOr<SpendingShare> Take(
      const CallOptions& options,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(const Session&)> submit);

  // Takes a share, and submits the request. One that is refused takes nothing.
  static absl::StatusOr<std::shared_ptr<Request>> Submit(
      const CallOptions& options,
      absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(const Session&)> submit,
      SpendingShare* share);

  ~SpendingShare() { Abandon(0); }
  SpendingShare(SpendingShare&&) = default;
  SpendingShare& operator=(SpendingShare&& other);

  // Whether something is set aside.
  bool holds() const { return spending_ != nullptr; }

  // The request has this result. A remembered answer takes nothing.
  void Settle(const Generation& result);
  void SettleTokens(int64_t tokens_in, int64_t tokens_out);
  // The request is cancelled, after so many tokens of its answer: it has taken these and its
  // prompt.
  void Abandon(int64_t tokens_out) { SettleTokens(prompt_tokens_, tokens_out); }

 private:
  std::shared_ptr<Spending> spending_;  // null: nothing is set aside (any more)
  Prices prices_;
  Expense most_;
  int64_t prompt_tokens_ = 0;
  int64_t guessed_tokens_ = 0;  // from which these are reckoned; 0: they are known
};

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_SPENDING_SHARE_H_
