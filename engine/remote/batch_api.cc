#include "engine/remote/batch_api.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/fetch.h"
#include "engine/remote/remote_server.h"

namespace lm {
namespace {

constexpr absl::Duration kLongestBatchTransfer = absl::Hours(6);
constexpr uint64_t kMostAnswerBytes = uint64_t{64} << 30;
constexpr absl::Duration kFirstLook = absl::Milliseconds(200);
constexpr absl::Duration kLongestLook = absl::Seconds(20);
constexpr absl::Duration kLongestRest = absl::Seconds(60);  // that a server asks for
constexpr int kMostListed = 1000;
constexpr char kBoundary[] = "sqlite-lm-7d1f0c9ab34e4f62";

int64_t CountAt(const Json* json, absl::string_view name) {
  const Json* member = json != nullptr ? json->Find(name) : nullptr;
  const bool count = member != nullptr && member->is_integer() && member->number() < 1e15;
  return count ? member->integer() : 0;
}

absl::StatusOr<RemoteBatch> ReadBatch(const Json& json, const Secrets& secrets) {
  RemoteBatch batch{.id = json.TextAt("id"),
                    .status = json.TextAt("status"),
                    .output_file = json.TextAt("output_file_id"),
                    .error_file = json.TextAt("error_file_id")};
  if (batch.id.empty() || batch.status.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the server sent no batch: ", ErrorText(json.Dump(), secrets)));
  }
  const Json* counts = json.Find("request_counts");
  batch.total = CountAt(counts, "total");
  batch.completed = CountAt(counts, "completed");
  batch.failed = CountAt(counts, "failed");
  const Json* errors = json.Find("errors");
  const Json* list = errors != nullptr ? errors->Find("data") : nullptr;
  if (list == nullptr || !list->is_array()) return batch;
  for (const Json& error : list->array()) {
    absl::StrAppend(&batch.errors, batch.errors.empty() ? "" : "; ",
                    ErrorText(error.Dump(), secrets));
  }
  return batch;
}

// Numbers become part of an address, and come from a server or from a table that anybody may write.
absl::Status CheckNumber(const std::string& number) {
  const bool plain = std::all_of(number.begin(), number.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_=.:+", absl::string_view(&c, 1));
  });
  if (plain && !number.empty() && !absl::StrContains(number, "..")) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", Printable(number), "' is no number of a file or a batch"));
}

class HttpBatchApi : public BatchApi {
 public:
  HttpBatchApi(Network* network, std::string url, const RemoteOptions& options)
      : network_(network), url_(std::move(url)), options_(options) {}

  absl::StatusOr<std::string> Upload(const std::string& name,
                                     std::shared_ptr<const ScratchFile> file,
                                     const std::atomic<bool>& cancel) override {
    auto upload = std::make_shared<HttpUpload>();
    upload->head = absl::StrCat(
        "--", kBoundary, "\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n--",
        kBoundary, "\r\nContent-Disposition: form-data; name=\"file\"; filename=\"", name,
        "\"\r\nContent-Type: application/jsonl\r\n\r\n");
    upload->tail = absl::StrCat("\r\n--", kBoundary, "--\r\n");
    upload->fd = file->fd();
    upload->bytes = file->bytes();
    upload->owner = file;
    HttpRequest request =
        RequestTo("/files", absl::StrCat("multipart/form-data; boundary=", kBoundary));
    request.upload = std::move(upload);
    request.timeout = kLongestBatchTransfer;
    ASSIGN_OR_RETURN(const Json answer, Ask(request, cancel));
    const std::string id = answer.TextAt("id");
    if (!id.empty()) return id;
    return absl::FailedPreconditionError(
        absl::StrCat(request.url, ": the server took the file and gave it no number"));
  }

  absl::StatusOr<std::optional<std::string>> FindFile(const std::string& name,
                                                      const std::atomic<bool>& cancel) override {
    std::optional<std::string> found;
    RETURN_IF_ERROR(Walk("/files?purpose=batch&limit=1000", cancel, [&](const Json& file) {
      if (file.TextAt("filename") == name) found = file.TextAt("id");
      return !found.has_value();
    }));
    return found;
  }

  absl::StatusOr<RemoteBatch> Create(const std::string& file, const std::string& key,
                                     const std::atomic<bool>& cancel) override {
    Json metadata = Json::MakeObject(), body = Json::MakeObject();
    metadata.Add("sqlite_lm", key);
    body.Add("input_file_id", file);
    body.Add("endpoint", "/v1/chat/completions");
    body.Add("completion_window", "24h");
    body.Add("metadata", std::move(metadata));
    HttpRequest request = RequestTo("/batches");
    request.headers.push_back(absl::StrCat("Idempotency-Key: ", key));
    request.body = body.Dump();
    ASSIGN_OR_RETURN(const Json answer, AskOnce(request, cancel));
    return ReadBatch(answer, secrets_);
  }

  absl::StatusOr<std::optional<RemoteBatch>> FindBatch(const std::string& file,
                                                       const std::atomic<bool>& cancel) override {
    std::optional<RemoteBatch> found;
    RETURN_IF_ERROR(Walk("/batches?limit=100", cancel, [&](const Json& batch) {
      if (batch.TextAt("input_file_id") != file) return true;
      const absl::StatusOr<RemoteBatch> read = ReadBatch(batch, secrets_);
      if (read.ok()) found = *read;
      return !found.has_value();
    }));
    return found;
  }

  absl::StatusOr<RemoteBatch> Get(const std::string& id, const std::atomic<bool>& cancel) override {
    RETURN_IF_ERROR(CheckNumber(id));
    ASSIGN_OR_RETURN(const Json answer, Ask(RequestTo(absl::StrCat("/batches/", id)), cancel));
    return ReadBatch(answer, secrets_);
  }

  absl::StatusOr<std::shared_ptr<const ScratchFile>> Download(
      const std::string& file, const std::atomic<bool>& cancel) override {
    RETURN_IF_ERROR(CheckNumber(file));
    HttpRequest request = RequestTo(absl::StrCat("/files/", file, "/content"));
    request.timeout = kLongestBatchTransfer;
    request.max_bytes = kMostAnswerBytes;
    std::shared_ptr<ScratchFile> taken;
    RETURN_IF_ERROR(Repeatedly(cancel, [&](absl::Duration* wait) -> absl::Status {
      ASSIGN_OR_RETURN(taken, ScratchFile::Create());
      ASSIGN_OR_RETURN(const Fetched got, Fetch(network_, request, cancel,
                                                [&](const Fetched&, absl::string_view bytes) {
                                                  return taken->Append(bytes);
                                                }));
      *wait = got.outcome.retry_after;
      return StatusOf(request, got);
    }));
    RETURN_IF_ERROR(taken->Flush());
    return taken;
  }

 private:
  HttpRequest RequestTo(absl::string_view path,
                        absl::string_view content_type = "application/json") const {
    return RemoteRequest(absl::StrCat(url_, path), RemoteHeaders(options_, content_type), options_);
  }

  absl::Status StatusOf(const HttpRequest& request, const Fetched& got) const {
    if (got.outcome.code / 100 == 2) return absl::OkStatus();
    return RejectionStatus(request.url, got.outcome.code, ErrorText(got.body, secrets_),
                           !options_.key_env.empty());
  }

  // Until it is no longer Unavailable; *wait, zero at first, is how long the server wants no more.
  template <typename Body>
  absl::Status Repeatedly(const std::atomic<bool>& cancel, Body body) const {
    absl::Duration pause = kFirstLook;
    for (int64_t failures = 0;; ++failures) {
      absl::Duration wait = absl::ZeroDuration();
      const absl::Status status = body(&wait);
      if (!absl::IsUnavailable(status) || failures >= options_.retries) return status;
      // Longer than that nobody sits waiting: who asks again later finds everything as it was.
      if (wait > kLongestRest) {
        return absl::UnavailableError(absl::StrCat(
            status.message(), " (it is to be asked again in ", absl::FormatDuration(wait), ")"));
      }
      SleepUnless(std::max(pause, wait), cancel);
      if (cancel) return absl::CancelledError("the transfer was cancelled");
      pause = std::min(2 * pause, kLongestLook);
    }
  }

  absl::StatusOr<Json> AskOnce(const HttpRequest& request, const std::atomic<bool>& cancel,
                               absl::Duration* wait = nullptr) const {
    ASSIGN_OR_RETURN(const Fetched got, Fetch(network_, request, cancel));
    if (wait != nullptr) *wait = got.outcome.retry_after;
    RETURN_IF_ERROR(StatusOf(request, got));
    std::optional<Json> json = Json::Parse(got.body);
    if (json.has_value() && json->is_object()) return *std::move(json);
    return absl::UnavailableError(
        absl::StrCat(request.url, ": the answer is no JSON: ", ErrorText(got.body, secrets_)));
  }

  absl::StatusOr<Json> Ask(const HttpRequest& request, const std::atomic<bool>& cancel) const {
    Json answer;
    RETURN_IF_ERROR(Repeatedly(cancel, [&](absl::Duration* wait) -> absl::Status {
      ASSIGN_OR_RETURN(answer, AskOnce(request, cancel, wait));
      return absl::OkStatus();
    }));
    return answer;
  }

  // each(entry) for the entries of a list, page after page, as long as it returns true.
  template <typename Each>
  absl::Status Walk(const std::string& path, const std::atomic<bool>& cancel, Each each) const {
    std::string after;
    for (int page = 0; page < kMostListed; ++page) {
      const std::string from = after.empty() ? path : absl::StrCat(path, "&after=", after);
      ASSIGN_OR_RETURN(const Json answer, Ask(RequestTo(from), cancel));
      const Json* data = answer.Find("data");
      if (data == nullptr || !data->is_array()) {
        return absl::FailedPreconditionError(absl::StrCat(
            url_, path, ": the server sent no list: ", ErrorText(answer.Dump(), secrets_)));
      }
      for (const Json& entry : data->array()) {
        if (!each(entry)) return absl::OkStatus();
      }
      const Json* more = answer.Find("has_more");
      const bool last = more == nullptr || !more->is_boolean() || !more->boolean();
      const std::string end = data->size() > 0 ? data->array().back().TextAt("id") : "";
      if (last || end.empty() || end == after) return absl::OkStatus();
      after = end;
    }
    return absl::OkStatus();
  }

  Network* const network_;
  const std::string url_;
  const RemoteOptions options_;
  const Secrets secrets_{RemoteHeaders(options_)};
};

}  // namespace

absl::StatusOr<std::shared_ptr<BatchApi>> OpenBatchApi(const std::string& url,
                                                       const RemoteOptions& options) {
  ASSIGN_OR_RETURN(Network * network, Network::Get());
  return std::make_shared<HttpBatchApi>(network, url, options);
}

}  // namespace lm
