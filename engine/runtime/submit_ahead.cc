#include "engine/runtime/submit_ahead.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace lm {

void SubmitAhead(size_t count,
                 absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(size_t)> submit,
                 absl::FunctionRef<void(size_t, absl::StatusOr<std::shared_ptr<Request>>)> take) {
  std::vector<absl::StatusOr<std::shared_ptr<Request>>> ahead(std::min(count, kMostAhead));
  size_t submitted = 0;
  for (size_t taken = 0; taken < count; ++taken) {
    for (; submitted < count && submitted - taken < ahead.size(); ++submitted) {
      absl::StatusOr<std::shared_ptr<Request>> request = submit(submitted);
      if (absl::IsResourceExhausted(request.status()) && submitted > taken) break;
      ahead[submitted % ahead.size()] = std::move(request);
    }
    take(taken, std::exchange(ahead[taken % ahead.size()], nullptr));
  }
}

}  // namespace lm
