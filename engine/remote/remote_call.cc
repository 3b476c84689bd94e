#include "engine/remote/remote_call.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr size_t kMostErrorBytes = 1 << 16;

}  // namespace

RemoteCall::RemoteCall(std::shared_ptr<Owner> owner, RemoteJob job, size_t endpoint)
    : job(std::move(job)),
      endpoint(endpoint),
      owner_(std::move(owner)),
      filter_(""),
      stops_(spec().options.stop) {}

bool RemoteCall::OnBody(int code, absl::string_view bytes) {
  if (code == 200 && !spec().embed.has_value()) {
    return stream_.Append(bytes, [this](const std::string& event) { return OnEvent(event); });
  }
  const size_t most = code == 200 ? bytes.size() : kMostErrorBytes - raw_.size();
  raw_.append(bytes.data(), std::min(bytes.size(), most));
  return true;
}

bool RemoteCall::OnEvent(const std::string& event) {
  const size_t before = answer_.text.size();
  broken_ = answer_.Append(event);
  if (!broken_.ok()) return false;
  if (answer_.text.size() == before && answer_.finish.empty()) return true;
  if (!has_first_token()) {
    first_token_ = absl::Now();
    owner_->OnFirstToken(this);
  }
  Append(absl::string_view(answer_.text).substr(before));
  return true;
}

// Handed out as it comes, where somebody looks on and it needs no proof.
void RemoteCall::Append(absl::string_view piece) {
  if (stops_.matched()) return;
  const bool drop = spec().options.thinking == Thinking::kDrop;
  const size_t before = text_.size();
  stops_.Append(drop ? filter_.Append(piece) : std::string(piece), &text_);
  if (spec().stream && job.grammar == nullptr && text_.size() > before) {
    job.request->PublishToken({.piece = text_.substr(before),
                               .logprob = std::numeric_limits<double>::quiet_NaN(),
                               .since_submission = absl::Now() - job.request->submitted()});
  }
}

// With what was held back.
void RemoteCall::FinishText() {
  const bool drop = spec().options.thinking == Thinking::kDrop;
  if (drop && !stops_.matched()) stops_.Append(filter_.Finish(), &text_);
  if (!stops_.matched()) stops_.Flush(&text_);
  // Some servers take the reasoning out themselves.
  if (drop || answer_.reasoning.empty()) return;
  text_ = absl::StrCat("<think>\n", answer_.reasoning, "\n</think>\n\n", text_);
}

absl::StatusOr<Generation> RemoteCall::Read() {
  Generation generation;
  generation.finish = FinishReason::kStop;
  if (spec().embed.has_value()) {
    ASSIGN_OR_RETURN(generation.embedding, ReadEmbedding(raw_));
    return generation;
  }
  RETURN_IF_ERROR(broken_);
  if (answer_.finish.empty()) {
    return absl::UnavailableError("the answer broke off before its end");
  }
  FinishText();
  generation.text = text_;
  if (answer_.finish == "length" && !stops_.matched()) generation.finish = FinishReason::kLength;
  if (answer_.finish == "content_filter") {
    generation.status = absl::FailedPreconditionError("the server's content filter stopped it");
  } else if (spec().wants_first_choices) {
    generation.status = ReadChoices(&generation);
  }
  return generation;
}

// Of the first token's alternatives those with which an answer may begin.
absl::Status RemoteCall::ReadChoices(Generation* generation) const {
  if (answer_.first.empty()) {
    return absl::FailedPreconditionError(
        "the server gives no probabilities (top_logprobs), and what they say is not guessed");
  }
  const std::optional<Json> choices = Json::Parse(spec().options.constraint.text);
  const Json::Array none;
  const Json::Array& list = choices.has_value() && choices->is_array() ? choices->array() : none;
  for (const FirstChoice& one : answer_.first) {
    const absl::string_view word = absl::StripLeadingAsciiWhitespace(one.text);
    const bool begins = !word.empty() && std::any_of(list.begin(), list.end(), [&](const Json& c) {
      return c.is_string() && absl::StartsWith(c.string(), word);
    });
    if (begins) generation->first_choices.push_back({std::string(word), one.logprob});
  }
  if (!generation->first_choices.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("none of the ", answer_.first.size(),
                   " most probable beginnings is one of the choices; the first is ",
                   Printable(answer_.first[0].text)));
}

void RemoteCall::Measure(Generation* generation) const {
  auto number = [](int64_t n) { return static_cast<int32_t>(std::min<int64_t>(n, INT32_MAX)); };
  const absl::Time now = absl::Now(), submitted = job.request->submitted();
  generation->tokens_in = number(answer_.tokens_in.value_or(0));
  generation->tokens_cached = number(answer_.tokens_cached.value_or(0));
  generation->tokens_out = number(answer_.tokens_out.value_or(answer_.pieces));
  generation->queued = begun_ - submitted;
  generation->time_to_first_token = std::min(first_token_, now) - submitted;
  generation->total = now - submitted;
}

}  // namespace lm
