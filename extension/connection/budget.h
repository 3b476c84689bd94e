// What a request may take at most of its statement's budgets, set aside before it is asked for.
//
//   auto submit = [&](const Session& session) { return session.Submit({...}); };
//   ASSIGN_OR_RETURN(std::unique_ptr<SpendingShare> share, SetAside(options, submit));
//   ASSIGN_OR_RETURN(std::shared_ptr<Request> request, submit(options.session()));
//   ...
//   SettleBy(request->result(), options, &share);
#ifndef LM_EXTENSION_CONNECTION_BUDGET_H_
#define LM_EXTENSION_CONNECTION_BUDGET_H_

#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "extension/connection/call_options.h"
#include "extension/connection/spending.h"

namespace lm {

// `submit` asks a session; it is called with one that only counts. Null where there is no budget,
// nothing to count, or where the request is refused, which it will be again. FailedPrecondition
// where one of the budgets has not that much left.
absl::StatusOr<std::unique_ptr<SpendingShare>> SetAside(
    const CallOptions& options,
    absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(const Session&)> submit);

// Settles the share of a request with these options by what has come of it, where there is one, and
// resets it.
void SettleBy(const Generation& generation, const CallOptions& options,
              std::unique_ptr<SpendingShare>* share);

}  // namespace lm

#endif  // LM_EXTENSION_CONNECTION_BUDGET_H_
