// RequestLog remembers the last requests of an engine: how long they waited and took, never their
// text.
#ifndef LM_ENGINE_RUNTIME_REQUEST_LOG_H_
#define LM_ENGINE_RUNTIME_REQUEST_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "engine/runtime/request.h"

namespace lm {

struct RequestRecord {
  int64_t number = 0;      // ascending; the engine's first is 1
  std::string salt;        // of the database that asked
  absl::string_view kind;  // "generate", "stream", "score", "embed"
  absl::Time submitted;
  absl::string_view finish;  // FinishReasonName's, or "cancelled"
  std::string error;         // where it is "error"; else empty
  int32_t tokens_in = 0;
  int32_t tokens_cached = 0;
  int32_t tokens_out = 0;
  absl::Duration queued;
  absl::Duration time_to_first_token;  // zero where there is none
  absl::Duration total;
};

// Not thread-safe.
class RequestLog {
 public:
  static constexpr size_t kRecords = 1000;

  void Add(const Request& request, const Generation& result);
  // The records of one salt that are left, the oldest first.
  std::vector<RequestRecord> Of(absl::string_view salt) const;

 private:
  std::vector<RequestRecord> ring_;
  int64_t count_ = 0;
};

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_REQUEST_LOG_H_
