#include "engine/remote/remote_call.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr size_t kMostErrorBytes = 1 << 16;
constexpr size_t kMostStrayBytes = 1 << 10;  // of what is to be events

}  // namespace

RemoteCall::RemoteCall(std::shared_ptr<Owner> owner, RemoteJob given, size_t endpoint,
                       Dialect dialect, const Secrets* secrets)
    : job(std::move(given)),
      endpoint(endpoint),
      owner_(std::move(owner)),
      dialect_(dialect),
      secrets_(*secrets),
      reader_(&spec(), secrets) {}

bool RemoteCall::OnBody(int code, absl::string_view bytes) {
  const bool more = Take(code, bytes);
  is_too_long_ = raw_.size() + stream_.held() + reader_.bytes() > kMostBytes;
  return more && !is_too_long_;
}

bool RemoteCall::Take(int code, absl::string_view bytes) {
  has_come_ = code == 200;
  const bool answers = code == 200 && !spec().embed.has_value();
  if (answers && form_ == Form::kUnknown) {
    const absl::string_view text = absl::StripLeadingAsciiWhitespace(bytes);
    if (!text.empty()) form_ = text[0] == '{' ? Form::kWhole : Form::kEvents;
  }
  if (answers && form_ != Form::kWhole) {
    if (!has_event_ && raw_.size() < kMostStrayBytes) {
      raw_.append(bytes.data(), std::min(bytes.size(), kMostStrayBytes));
    }
    return stream_.Append(bytes, [this](const std::string& event) { return OnEvent(event); });
  }
  const size_t most = code == 200 ? bytes.size() : kMostErrorBytes - raw_.size();
  raw_.append(bytes.data(), std::min(bytes.size(), most));
  return true;
}

void RemoteCall::OnDone(const HttpOutcome& outcome) {
  try {
    if (form_ == Form::kWhole && outcome.status.ok()) OnEvent(raw_);
    if (spec().embed.has_value() && outcome.status.ok() && outcome.code == 200) {
      embedding_ =
          spec().ranks ? ReadScore(raw_, dialect_, secrets_) : ReadEmbedding(raw_, secrets_);
    }
  } catch (...) {  // no memory: an answer without an end
  }
  owner_->OnDone(this, outcome);
}

bool RemoteCall::OnEvent(const std::string& data) {
  const absl::string_view event = absl::StripAsciiWhitespace(data);
  has_event_ = true;
  if (has_ended_) return true;  // what is behind the end is none of the answer
  if (event == "[DONE]") {
    has_ended_ = true;
    owner_->OnLastEvent(this);
  }
  if (!reader_.Append(event).ok()) return false;
  if (!has_first_token() && reader_.begun()) {
    first_token_ = MonotonicTime::Now();
    owner_->OnFirstToken(this);
  }
  return !spec().stream || HandOut(reader_.text());
}

bool RemoteCall::HandOut(absl::string_view text) {
  const absl::string_view out = job.handed_out;
  const size_t both = std::min(text.size(), out.size());
  const size_t anew = both - compared_;
  differs_ = differs_ || text.substr(compared_, anew) != out.substr(compared_, anew);
  compared_ = both;
  if (differs_ || text.size() == both) return !differs_;
  StreamedToken token{.piece = std::string(text.substr(both)),
                      .logprob = std::numeric_limits<double>::quiet_NaN(),
                      .since_submission = MonotonicTime::Now() - job.request->submitted()};
  job.handed_out += token.piece;
  absl::Cleanup not_out = [this, both] { job.handed_out.resize(both); };
  job.request->PublishToken(std::move(token));
  std::move(not_out).Cancel();
  return true;
}

bool RemoteCall::HandOutWhole(absl::string_view text) {
  differs_ = !HandOut(text) || text.size() < job.handed_out.size();
  return !differs_;
}

absl::StatusOr<Generation> RemoteCall::Read() {
  if (form_ == Form::kEvents && !has_event_) {
    return absl::UnavailableError(
        absl::StrCat("the server sent neither JSON nor events, but: ", ShownWords(raw_, secrets_)));
  }
  if (!spec().embed.has_value()) return reader_.Read();
  RETURN_IF_ERROR(embedding_.status());
  return Generation{.finish = FinishReason::kStop, .embedding = embedding_->numbers};
}

int64_t RemoteCall::Unused() const {
  Generation counts;
  CountTokens(&counts);
  return job.tokens - counts.tokens_in - counts.tokens_out;
}

void RemoteCall::CountTokens(Generation* generation) const {
  reader_.CountTokens(generation);
  if (embedding_.ok()) generation->tokens_in = SaturatedTokens(embedding_->tokens_in);
  if (has_come_ && generation->tokens_in == 0) {
    generation->tokens_in = SaturatedTokens(job.prompt_tokens);
  }
}

void RemoteCall::AddSpent() {
  Generation counts;
  CountTokens(&counts);
  job.spent_in += counts.tokens_in;
  job.spent_out += counts.tokens_out;
}

void RemoteCall::Measure(Generation* generation) const {
  const MonotonicTime now = MonotonicTime::Now(), submitted = job.request->submitted();
  CountTokens(generation);
  *generation = job.WithSpent(std::move(*generation));
  generation->queued = begun_ - submitted;
  generation->time_to_first_token = std::min(first_token_, now) - submitted;
  generation->total = now - submitted;
}

}  // namespace lm
