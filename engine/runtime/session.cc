#include "engine/runtime/session.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "engine/runtime/vote.h"

namespace lm {

Session::Session(std::shared_ptr<Generator> generator, std::string salt,
                 std::optional<MemoAccess> memo)
    : generator_(std::move(generator)), salt_(std::move(salt)), memo_(std::move(memo)) {}

void Session::NotePurpose(const TextRequest& request) const {
  const bool writes = request.task == Task::kGenerate || request.task == Task::kChoose ||
                      request.task == Task::kWeigh;
  if (strayed_ == nullptr || !writes) return;
  const Purpose& purpose = generator_->info().purpose;
  *strayed_ = request.asked.has_value()
                  ? !purpose.Covers({*request.asked, request.prompt})
                  : !purpose.Covers({request.system, request.prompt, request.question});
}

absl::StatusOr<std::shared_ptr<Request>> Session::Submit(TextRequest request) const {
  request.salt = salt_;
  ASSIGN_OR_RETURN(RequestSpec spec, generator_->Prepare(request));
  RETURN_IF_ERROR(CheckDrawn(spec));
  if (tally_ != nullptr) return tally_->Take(generator_, std::move(spec));
  NotePurpose(request);
  if (memo_.has_value()) {
    const MemoAccess access = {memo_->owner, memo_->store, std::move(request.scan)};
    return ProcessMemo().Submit(*generator_, std::move(spec), access);
  }
  return SubmitRequest(*generator_, std::move(spec));
}

}  // namespace lm
