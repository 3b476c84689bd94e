#include "engine/remote/hub_download.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "engine/base/json.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/remote/chat_api.h"
#include "engine/remote/download_list.h"
#include "engine/remote/fetch.h"
#include "engine/remote/part_file.h"
#include "engine/remote/remote_options.h"

namespace lm {
namespace {

constexpr absl::string_view kHub = "https://huggingface.co";
constexpr int kMostHops = 10;
constexpr int kMostPages = 100;
constexpr int kMostFailures = 6;  // in a row, without a byte
constexpr absl::Duration kFirstPause = absl::Milliseconds(200);
constexpr absl::Duration kLongestPause = absl::Seconds(20);
constexpr absl::Duration kLongestTransfer = absl::Hours(24);
constexpr absl::Duration kShowEvery = absl::Milliseconds(200);
constexpr size_t kDigits = 64;  // of a SHA-256

absl::string_view Origin(absl::string_view url) {
  const size_t host = url.find("://");
  return url.substr(0, std::min(url.find('/', host + 3), url.size()));
}

// What stands in quotes in an ETag, weak or not.
std::string EtagOf(const Fetched& got, const std::string& name) {
  const auto found = got.headers.find(name);
  if (found == got.headers.end()) return "";
  absl::string_view etag = found->second;
  absl::ConsumePrefix(&etag, "W/");
  absl::ConsumePrefix(&etag, "\"");
  absl::ConsumeSuffix(&etag, "\"");
  return std::string(etag);
}

// What If-Range may ask for: no weak mark (RFC 9110, 13.1.5).
std::string StrongEtagOf(const Fetched& got) {
  const auto found = got.headers.find("etag");
  const bool weak = found != got.headers.end() && absl::StartsWith(found->second, "W/");
  return weak ? "" : EtagOf(got, "etag");
}

std::string HeaderOf(const Fetched& got, const std::string& name) {
  const auto found = got.headers.find(name);
  return found != got.headers.end() ? found->second : "";
}

// On the terminal, where there is one, how far it is; and nothing is left there but a line.
class Shown {
 public:
  Shown(const Download& download, std::string name, int64_t total)
      : download_(download), name_(std::move(name)), total_(total) {}
  ~Shown() {
    if (shown_) std::fputs("\n", stderr);
  }
  void Show() {
    const MonotonicTime now = MonotonicTime::Now();
    if (!terminal_ || now < next_) return;
    next_ = now + kShowEvery;
    const int64_t bytes = download_.bytes();
    const double seconds = absl::ToDoubleSeconds(now - began_);
    const double rate = seconds > 0 ? static_cast<double>(bytes - first_) / seconds / 1e6 : 0;
    std::fprintf(
        stderr, "\r%s: %3.0f%% of %.1f MB, %.1f MB/s ", name_.c_str(),
        100.0 * static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(total_, 1)),
        static_cast<double>(total_) / 1e6, rate);
    shown_ = true;
  }

 private:
  const Download& download_;
  const std::string name_;
  const int64_t total_;
  const int64_t first_ = download_.bytes();
  const MonotonicTime began_ = MonotonicTime::Now();
  const bool terminal_ = isatty(STDERR_FILENO) == 1;
  MonotonicTime next_ = MonotonicTime::InfinitePast();
  bool shown_ = false;
};

class Hub {
 public:
  Hub(Network* network, const std::atomic<bool>& cancel) : network_(network), cancel_(cancel) {
    const char* endpoint = std::getenv("HF_ENDPOINT");
    if (endpoint != nullptr && *endpoint != '\0') url_ = endpoint;
    while (absl::EndsWith(url_, "/")) url_.pop_back();
  }

  struct File {
    std::string path;
    FileFacts facts = {};  // as far as the list tells
  };
  absl::StatusOr<std::vector<File>> List(const HubReference& reference);
  // What the hub tells of a file where its list does not.
  absl::Status Look(const HubReference& reference, File* file);
  absl::Status Bring(const HubReference& reference, const File& file, PartFile* part,
                     Download* download);

 private:
  // One answer, behind redirects, if it is to follow them; `first` is that of the hub itself.
  absl::StatusOr<Fetched> Ask(const std::string& url, std::vector<std::string> headers,
                              const FetchSink& sink = nullptr, Fetched* first = nullptr,
                              bool follow = true);
  absl::Status Explain(const std::string& url, const Fetched& got) const;
  std::string UrlOf(const HubReference& reference, const std::string& path) const {
    return absl::StrCat(url_, "/", reference.repository, "/resolve/", reference.revision, "/",
                        path);
  }
  // One try to bring the rest.
  absl::Status BringRest(const std::string& url, const File& file, PartFile* part,
                         Download* download, Shown* shown);

  Network* const network_;
  const std::atomic<bool>& cancel_;
  std::string url_ = std::string(kHub);
  Secrets secrets_;
};

// The token is the hub's alone; from https nothing leads back to http.
absl::StatusOr<Fetched> Hub::Ask(const std::string& from, std::vector<std::string> headers,
                                 const FetchSink& sink, Fetched* first, bool follow) {
  std::string url = from;
  for (int hop = 0; hop < kMostHops; ++hop) {
    RETURN_IF_ERROR(CheckMaySpeakTo(url));
    HttpRequest request{.url = url,
                        .headers = headers,
                        .timeout = kLongestTransfer,
                        .silence = absl::Minutes(1),
                        .max_bytes = UINT64_MAX};
    const char* token = std::getenv("HF_TOKEN");
    if (token != nullptr && *token != '\0' && Origin(url) == Origin(url_)) {
      const std::string told = absl::StrCat("Authorization: Bearer ", token);
      request.headers.push_back(told);
      secrets_ = Secrets({told});
    }
    ASSIGN_OR_RETURN(Fetched got, Fetch(network_, request, cancel_, sink));
    if (hop == 0 && first != nullptr) *first = got;
    const int code = got.outcome.code;
    if (code < 300 || code >= 400 || got.outcome.location.empty()) {
      if (code / 100 == 2 || code == 416) return got;
      return Explain(url, got);
    }
    if (!follow) return got;
    const bool down = absl::StartsWithIgnoreCase(url, "https:") &&
                      !absl::StartsWithIgnoreCase(got.outcome.location, "https:");
    if (down) {
      return absl::FailedPreconditionError(
          absl::StrCat(url, " leads from https to ", Printable(got.outcome.location)));
    }
    url = got.outcome.location;
  }
  return absl::FailedPreconditionError(absl::StrCat(from, ": more than ", kMostHops, " redirects"));
}

absl::Status Hub::Explain(const std::string& url, const Fetched& got) const {
  const int code = got.outcome.code;
  const std::string why = HeaderOf(got, "x-error-message");
  const std::string words = why.empty() ? ErrorText(got.body, secrets_) : ShownWords(why, secrets_);
  absl::Status status = RejectionStatus(Origin(url), code, words, /*has_key=*/true);
  const char* hint = code == 401   ? " (no such model, or one that is private or gated: the "
                                     "environment variable HF_TOKEN takes a token of the hub)"
                     : code == 403 ? " (the model is gated: its terms are accepted on its page at "
                                     "the hub, and HF_TOKEN takes the token of who did)"
                     : code == 404 ? " (the hub has no such model, revision or file)"
                                   : "";
  return absl::Status(status.code(), absl::StrCat(status.message(), hint));
}

absl::StatusOr<std::vector<Hub::File>> Hub::List(const HubReference& reference) {
  std::vector<File> files;
  std::string url = absl::StrCat(url_, "/api/models/", reference.repository, "/tree/",
                                 reference.revision, "?recursive=true");
  for (int page = 0; page < kMostPages && !url.empty(); ++page) {
    ASSIGN_OR_RETURN(const Fetched got, Ask(url, {"Accept: application/json"}));
    const std::optional<Json> list = Json::Parse(got.body);
    if (!list.has_value() || !list->is_array()) {
      return absl::UnavailableError(
          absl::StrCat(url, ": the hub sent no list of files: ", ErrorText(got.body, secrets_)));
    }
    for (const Json& entry : list->array()) {
      const Json* path = entry.Find("path");
      if (path == nullptr || !path->is_string() || !IsPlainPath(path->string())) continue;
      File file{.path = path->string()};
      const Json* lfs = entry.Find("lfs");
      const Json* oid = lfs != nullptr ? lfs->Find("oid") : nullptr;
      const Json* size = lfs != nullptr ? lfs->Find("size") : nullptr;
      if (oid != nullptr && oid->is_string()) file.facts.sha256 = oid->string();
      if (size != nullptr && size->is_integer()) file.facts.size = size->integer();
      files.push_back(std::move(file));
    }
    // Link: <https://...>; rel="next"
    const std::string link = HeaderOf(got, "link");
    const size_t begin = link.find('<'), end = link.find(">; rel=\"next\"");
    url = begin < end && end != link.npos ? link.substr(begin + 1, end - begin - 1) : "";
    if (!url.empty() && Origin(url) != Origin(url_)) url.clear();
  }
  return files;
}

absl::Status Hub::Look(const HubReference& reference, File* file) {
  if (file->facts.sha256.size() != kDigits || file->facts.size == 0) {
    const std::string url = UrlOf(reference, file->path);
    ASSIGN_OR_RETURN(const Fetched got,
                     Ask(url, {"Range: bytes=0-0"}, nullptr, nullptr, /*follow=*/false));
    file->facts.sha256 = EtagOf(got, "x-linked-etag");
    int64_t size = 0;
    if (absl::SimpleAtoi(HeaderOf(got, "x-linked-size"), &size)) file->facts.size = size;
  }
  if (file->facts.sha256.size() == kDigits && file->facts.size > 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(url_, " tells neither size nor SHA-256 of ",
                                                    file->path, ", and what it is is not guessed"));
}

absl::Status Hub::BringRest(const std::string& url, const File& file, PartFile* part,
                            Download* download, Shown* shown) {
  std::vector<std::string> headers;
  const int64_t from = part->size();
  if (from > 0) {
    headers.push_back(absl::StrCat("Range: bytes=", from, "-"));
    if (!part->etag().empty()) headers.push_back(absl::StrCat("If-Range: \"", part->etag(), "\""));
  }
  bool begun = false;
  Fetched first;
  const FetchSink sink = [&](const Fetched& so_far, absl::string_view bytes) -> absl::Status {
    if (!std::exchange(begun, true)) {
      const bool goes_on = so_far.outcome.code == 206 && from > 0;
      const std::string range = HeaderOf(so_far, "content-range");
      if (goes_on && !absl::StartsWith(range, absl::StrCat("bytes ", from, "-"))) {
        return absl::DataLossError(
            absl::StrCat(url, ": asked for bytes from ", from, " on, got ", Printable(range)));
      }
      if (!goes_on) {
        RETURN_IF_ERROR(part->Restart(StrongEtagOf(so_far)));
        download->Resume(0);
      }
    }
    RETURN_IF_ERROR(part->Append(bytes));
    download->Add(static_cast<int64_t>(bytes.size()));
    shown->Show();
    return absl::OkStatus();
  };
  ASSIGN_OR_RETURN(const Fetched got, Ask(url, std::move(headers), sink, &first));
  const std::string linked = EtagOf(first, "x-linked-etag");
  if (linked.size() == kDigits && linked != file.facts.sha256) {
    return absl::FailedPreconditionError(
        absl::StrCat(url, " is another file by now than the hub's list says: try again"));
  }
  if (got.outcome.code == 416 && part->size() < file.facts.size) {
    return absl::DataLossError(
        absl::StrCat(url, ": has ", part->size(), " bytes, the hub said ", file.facts.size));
  }
  if (part->size() < file.facts.size) {
    const std::string why =
        absl::StrCat(url, ": ended after ", part->size(), " bytes, the hub said ", file.facts.size);
    // An end that nobody calls broken, after some bytes, is where a transfer broke off.
    return part->size() > from ? absl::UnavailableError(why) : absl::DataLossError(why);
  }
  return absl::OkStatus();
}

absl::Status Hub::Bring(const HubReference& reference, const File& file, PartFile* part,
                        Download* download) {
  const std::string url = UrlOf(reference, file.path);
  Shown shown(*download, file.path, file.facts.size);
  absl::Duration pause = kFirstPause;
  int failures = 0;
  while (part->size() < file.facts.size) {
    const int64_t before = part->size();
    const absl::Status status = BringRest(url, file, part, download, &shown);
    if (status.ok()) break;
    if (!absl::IsUnavailable(status)) return status;
    const bool moved = part->size() > before;
    failures = moved ? 1 : failures + 1;
    if (moved) pause = kFirstPause;
    if (failures > kMostFailures) return status;
    SleepUnless(pause, cancel_);
    if (cancel_) return absl::CancelledError("the download was cancelled");
    pause = std::min(2 * pause, kLongestPause);
  }
  return part->Commit();
}

absl::Status DownloadFile(Hub& hub, const HubReference& reference, Hub::File file,
                          const std::string& path, const std::atomic<bool>& cancel) {
  const std::shared_ptr<Download> download = Download::Begin(reference.text, path);
  absl::Status status = absl::UnknownError("it was not begun");
  const absl::Cleanup end = [&] { download->End(status); };
  status = [&]() -> absl::Status {
    RETURN_IF_ERROR(hub.Look(reference, &file));
    download->SetTotal(file.facts.size);
    ASSIGN_OR_RETURN(const std::unique_ptr<PartFile> part,
                     PartFile::Open(path, file.facts, cancel));
    download->Resume(part->is_there() ? file.facts.size : part->size());
    if (part->is_there()) return absl::OkStatus();
    download->Run();
    return hub.Bring(reference, file, part.get(), download.get());
  }();
  return status;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> DownloadModel(const HubReference& reference,
                                                       const std::atomic<bool>& cancel) {
  ASSIGN_OR_RETURN(const std::string folder, HubFolder(reference));
  ASSIGN_OR_RETURN(Network * network, Network::Get());
  Hub hub(network, cancel);
  ASSIGN_OR_RETURN(const std::vector<Hub::File> files, hub.List(reference));
  std::vector<std::string> names;
  for (const Hub::File& file : files) names.push_back(file.path);
  ASSIGN_OR_RETURN(const std::vector<std::string> chosen, ChooseFiles(reference, names));
  std::vector<std::string> paths;
  for (const std::string& name : chosen) {
    const auto file = std::find_if(files.begin(), files.end(),
                                   [&](const Hub::File& one) { return one.path == name; });
    paths.push_back(absl::StrCat(folder, "/", name));
    RETURN_IF_ERROR(DownloadFile(hub, reference, *file, paths.back(), cancel));
  }
  return paths;
}

}  // namespace lm
