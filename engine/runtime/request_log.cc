#include "engine/runtime/request_log.h"

#include <algorithm>
#include <utility>

namespace lm {
namespace {

absl::string_view KindOf(const RequestSpec& spec) {
  if (spec.score_prompt) return "score";
  if (spec.embed.has_value()) return "embed";
  return spec.stream ? "stream" : "generate";
}

}  // namespace

void RequestLog::Add(const Request& request, const Generation& result) {
  const bool cancelled = absl::IsCancelled(result.status);
  const FinishReason finish = result.status.ok() ? result.finish : FinishReason::kError;
  RequestRecord record{.number = count_ + 1,
                       .salt = request.spec().salt,
                       .kind = KindOf(request.spec()),
                       .submitted = request.date(),
                       .finish = cancelled ? "cancelled" : FinishReasonName(finish),
                       .error = cancelled ? "" : std::string(result.status.message()),
                       .tokens_in = result.tokens_in,
                       .tokens_cached = result.tokens_cached,
                       .tokens_out = result.tokens_out,
                       .queued = result.queued,
                       .time_to_first_token = result.time_to_first_token,
                       .total = result.total};
  if (ring_.size() < kRecords) {
    ring_.push_back(std::move(record));
  } else {
    ring_[count_ % kRecords] = std::move(record);
  }
  ++count_;
}

std::vector<RequestRecord> RequestLog::Of(absl::string_view salt) const {
  std::vector<RequestRecord> records;
  for (const RequestRecord& record : ring_) {
    if (record.salt == salt) records.push_back(record);
  }
  std::sort(records.begin(), records.end(),
            [](const RequestRecord& a, const RequestRecord& b) { return a.number < b.number; });
  return records;
}

}  // namespace lm
