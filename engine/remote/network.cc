#include "engine/remote/network.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>
#include <system_error>
#include <thread>

#include "absl/base/const_init.h"
#include "absl/cleanup/cleanup.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "engine/base/exit_guard.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/out_of_memory.h"
#include "engine/base/own_thread.h"
#include "engine/base/status_macros.h"
#include "engine/base/this_process.h"
#include "engine/runtime/fork_guard.h"

namespace lm {
namespace {

constexpr absl::Duration kLongestPoll = absl::Seconds(1);
constexpr absl::Duration kLongestRetryAfter = absl::Hours(1);
constexpr absl::Duration kConnectTimeout = absl::Seconds(10);
constexpr auto kOldProtocols = static_cast<CURLoption>(CURLOPTTYPE_LONG + 181);  // before 7.85

// Of the first of these variables that is set.
const char* FromEnvironment(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return nullptr;
}

// Of a transfer that ended before there was a connection.
bool IsUnreachable(CURLcode code) {
  return code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_RESOLVE_PROXY ||
         code == CURLE_COULDNT_CONNECT || code == CURLE_SSL_CONNECT_ERROR ||
         code == CURLE_PEER_FAILED_VERIFICATION;
}

}  // namespace

struct Network::Transfer {
  uint64_t number = 0;
  Network* network = nullptr;
  std::string body;
  std::shared_ptr<const HttpUpload> upload;
  int64_t sent = 0;  // of the upload
  std::shared_ptr<HttpHandler> handler;
  CURL* easy = nullptr;
  curl_slist* headers = nullptr;
  uint64_t bytes = 0;
  uint64_t max_bytes = 0;
  bool enough = false;
  bool too_much = false;
  bool no_memory = false;
  char error[CURL_ERROR_SIZE] = {};

  ~Transfer() {
    if (easy != nullptr) network->curl_.easy_cleanup(easy);
    network->curl_.slist_free_all(headers);
  }

  int Code() const {
    long code = 0;
    network->curl_.easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &code);
    return static_cast<int>(code);
  }

  static size_t Write(char* data, size_t, size_t size, void* transfer) noexcept {
    auto* self = static_cast<Transfer*>(transfer);
    ReadyToThrow();
    self->bytes += size;
    self->too_much = self->bytes > self->max_bytes;
    try {
      self->enough = self->too_much || !self->handler->OnBody(self->Code(), {data, size});
    } catch (...) {
      self->enough = self->no_memory = true;
    }
    return self->enough ? 0 : size;
  }

  static size_t Header(char* data, size_t, size_t size, void* transfer) noexcept {
    auto* self = static_cast<Transfer*>(transfer);
    ReadyToThrow();
    try {
      self->handler->OnHeader(absl::StripTrailingAsciiWhitespace({data, size}));
    } catch (...) {
      self->enough = self->no_memory = true;
      return 0;
    }
    return size;
  }

  static size_t Read(char* out, size_t, size_t most, void* transfer) noexcept {
    auto* self = static_cast<Transfer*>(transfer);
    const int64_t n = self->upload->Read(self->sent, out, static_cast<int64_t>(most));
    if (n < 0) return CURL_READFUNC_ABORT;
    self->sent += n;
    return static_cast<size_t>(n);
  }

  // Where a kept connection turns out to be dead, it begins anew.
  static int Seek(void* transfer, curl_off_t offset, int origin) noexcept {
    if (origin != SEEK_SET) return CURL_SEEKFUNC_CANTSEEK;
    static_cast<Transfer*>(transfer)->sent = offset;
    return CURL_SEEKFUNC_OK;
  }
};

int64_t HttpUpload::Read(int64_t offset, char* out, int64_t most) const {
  const auto head_bytes = static_cast<int64_t>(head.size());
  auto copy = [&](absl::string_view text, int64_t at) {
    const int64_t n = std::min(most, static_cast<int64_t>(text.size()) - at);
    std::memcpy(out, text.data() + at, static_cast<size_t>(n));
    return n;
  };
  if (offset < head_bytes) return copy(head, offset);
  if (offset >= head_bytes + bytes) return copy(tail, offset - head_bytes - bytes);
  const int64_t at = offset - head_bytes;
  const auto wanted = static_cast<size_t>(std::min(most, bytes - at));
  for (;;) {
    const ssize_t n = pread(fd, out, wanted, at);
    if (n > 0) return n;
    if (n == 0 || errno != EINTR) return -1;  // cut, or unreadable
  }
}

Network::Network(const CurlLibrary* curl) : curl_(*curl) {}
Network::~Network() {
  if (multi_ != nullptr) curl_.multi_cleanup(multi_);
}

absl::StatusOr<Network*> Network::Get() {
  static std::atomic<uint64_t> owner{0};
  uint64_t none = 0;
  if (!owner.compare_exchange_strong(none, ThisProcess()) && none != ThisProcess()) {
    return ForkGuard::Error();
  }
  static absl::Mutex mutex(absl::kConstInit);
  static Network* network = nullptr;
  absl::MutexLock lock(&mutex);
  if (network != nullptr) return network;
  ASSIGN_OR_RETURN(const CurlLibrary* curl, OpenCurl());
  auto* made = new Network(curl);
  const absl::Status begun = made->Begin();
  if (!begun.ok()) {
    delete made;
    return begun;
  }
  return network = made;
}

absl::Status Network::Begin() {
  multi_ = curl_.multi_init();
  if (multi_ == nullptr) return OutOfMemory();
  curl_.multi_setopt(multi_, CURLMOPT_PIPELINING, static_cast<long>(CURLPIPE_MULTIPLEX));
  curl_.multi_setopt(multi_, CURLMOPT_MAXCONNECTS, kMostConnections);
  curl_.multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS, kMostConnections);
  try {
    StartThread([this] { Loop(); }).detach();
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("there are no more threads, and the network needs one");
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
  return absl::OkStatus();
}

void Network::Run(std::function<void()> task) {
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    tasks_.push_back(std::move(task));
  }
  curl_.multi_wakeup(multi_);
}

void Network::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
  }
  curl_.multi_wakeup(multi_);
}

void Network::Loop() noexcept {
  ExitGuard guard([](void* network) { static_cast<Network*>(network)->Stop(); }, this);
  if (!guard.allowed()) return;
  for (;;) {
    RunTasks();
    {
      absl::MutexLock lock(&mutex_);
      if (stop_) break;
    }
    int running = 0;
    curl_.multi_perform(multi_, &running);
    TakeOutcomes();
    absl::Duration wait = kLongestPoll;
    if (!timers_.empty()) {
      wait = std::clamp(timers_.begin()->first - MonotonicTime::Now(), absl::ZeroDuration(), wait);
    }
    curl_.multi_poll(
        multi_, nullptr, 0,
        static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(wait, absl::Milliseconds(1)))),
        nullptr);
  }
  // exit(): whoever waits learns it, and nothing of curl is used any more.
  while (!transfers_.empty()) {
    const std::shared_ptr<HttpHandler> handler = transfers_.begin()->second->handler;
    Remove(transfers_.begin()->second.get());
    try {
      handler->OnDone({.status = ExitGuard::Error()});
    } catch (...) {
    }
  }
}

void Network::RunTasks() {
  std::vector<std::function<void()>> due;
  {
    absl::MutexLock lock(&mutex_);
    due.swap(tasks_);
  }
  auto run = [](const std::function<void()>& task) {
    ReadyToThrow();
    try {
      task();
    } catch (...) {  // a task that may fail sees to that itself
    }
  };
  for (const std::function<void()>& task : due) run(task);
  // Taken without memory: where there is none one would be due for ever.
  const MonotonicTime now = MonotonicTime::Now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    const auto timer = timers_.extract(timers_.begin());
    run(timer.mapped());
  }
}

void Network::RunAt(MonotonicTime when, std::function<void()> task) {
  timers_.emplace(when, std::move(task));
}

uint64_t Network::Start(const HttpRequest& request, std::shared_ptr<HttpHandler> handler) {
  auto transfer = std::make_unique<Transfer>();
  transfer->number = ++last_transfer_;
  transfer->network = this;
  transfer->body = request.body;
  transfer->upload = request.upload;
  transfer->handler = std::move(handler);
  transfer->max_bytes = request.max_bytes;
  transfer->easy = curl_.easy_init();
  Transfer& t = *transfers_.emplace(last_transfer_, std::move(transfer)).first->second;
  bool ok = t.easy != nullptr;
  for (const std::string& header : request.headers) {
    curl_slist* longer = ok ? curl_.slist_append(t.headers, header.c_str()) : nullptr;
    ok = longer != nullptr;
    if (ok) t.headers = longer;
  }
  auto set = [&](CURLoption option, auto value) {
    ok = ok && curl_.easy_setopt(t.easy, option, value) == CURLE_OK;
  };
  set(CURLOPT_URL, request.url.c_str());
  if (curl_.easy_setopt(t.easy, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK) {
    set(kOldProtocols, static_cast<long>(CURLPROTO_HTTP | CURLPROTO_HTTPS));
  }
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(kConnectTimeout)));
  set(CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(request.timeout)));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, static_cast<long>(absl::ToInt64Seconds(request.silence)));
  // Proxies libcurl itself finds in the environment; whom to trust it does not.
  if (const char* file = FromEnvironment({"CURL_CA_BUNDLE", "SSL_CERT_FILE"})) {
    set(CURLOPT_CAINFO, file);
    curl_.easy_setopt(t.easy, CURLOPT_PROXY_CAINFO, file);  // not every TLS library knows it
  }
  if (const char* folder = FromEnvironment({"SSL_CERT_DIR"})) set(CURLOPT_CAPATH, folder);
  set(CURLOPT_HTTPHEADER, t.headers);
  set(CURLOPT_ERRORBUFFER, static_cast<char*>(t.error));
  set(CURLOPT_WRITEFUNCTION, &Transfer::Write);
  set(CURLOPT_WRITEDATA, &t);
  set(CURLOPT_HEADERFUNCTION, &Transfer::Header);
  set(CURLOPT_HEADERDATA, &t);
  set(CURLOPT_PRIVATE, &t);
  if (!t.body.empty()) {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_POSTFIELDS, t.body.c_str());
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.body.size()));
  }
  if (t.upload != nullptr) {
    set(CURLOPT_POST, 1L);
    set(CURLOPT_READFUNCTION, &Transfer::Read);
    set(CURLOPT_READDATA, &t);
    set(CURLOPT_SEEKFUNCTION, &Transfer::Seek);
    set(CURLOPT_SEEKDATA, &t);
    set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(t.upload->size()));
  }
  ok = ok && curl_.multi_add_handle(multi_, t.easy) == CURLM_OK;
  const uint64_t number = t.number;
  if (!ok) {
    absl::Cleanup forgotten = [&] { transfers_.erase(number); };
    Run([this, number] {
      const auto found = transfers_.find(number);
      if (found != transfers_.end()) Finish(found->second.get(), CURLE_FAILED_INIT);
    });
    std::move(forgotten).Cancel();
  }
  return number;
}

void Network::Abort(uint64_t transfer) {
  const auto found = transfers_.find(transfer);
  if (found != transfers_.end()) Remove(found->second.get());
}

void Network::TakeOutcomes() {
  int left = 0;
  while (const CURLMsg* message = curl_.multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    Transfer* transfer = nullptr;
    curl_.easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
    Finish(transfer, message->data.result);
  }
}

HttpOutcome Network::OutcomeOf(const Transfer& transfer, CURLcode code) const {
  HttpOutcome outcome;
  if (transfer.easy != nullptr) {
    curl_off_t retry_after = 0;
    outcome.code = transfer.Code();
    curl_.easy_getinfo(transfer.easy, CURLINFO_RETRY_AFTER, &retry_after);
    outcome.retry_after = std::min(absl::Seconds(retry_after), kLongestRetryAfter);
    char* location = nullptr;
    curl_.easy_getinfo(transfer.easy, CURLINFO_REDIRECT_URL, &location);
    if (location != nullptr) outcome.location = location;
  }
  if (transfer.no_memory) {
    outcome.status = OutOfMemory();
  } else if (transfer.too_much) {
    outcome.status = absl::OutOfRangeError(
        absl::StrCat("the answer has more than ", transfer.max_bytes, " bytes"));
  } else if (code != CURLE_OK && !transfer.enough) {
    outcome.unreachable = IsUnreachable(code);
    outcome.status = absl::UnavailableError(transfer.error[0] != '\0' ? transfer.error
                                                                      : curl_.easy_strerror(code));
  }
  return outcome;
}

void Network::Finish(Transfer* transfer, CURLcode code) {
  HttpOutcome outcome;
  try {
    outcome = OutcomeOf(*transfer, code);
  } catch (...) {
    outcome.status = OutOfMemory();
  }
  const std::shared_ptr<HttpHandler> handler = transfer->handler;
  Remove(transfer);
  try {
    handler->OnDone(outcome);
  } catch (...) {  // a handler sees to its own failures
  }
}

void Network::Remove(Transfer* transfer) {
  if (transfer->easy != nullptr) curl_.multi_remove_handle(multi_, transfer->easy);
  transfers_.erase(transfer->number);
}

}  // namespace lm
