#include "engine/remote/curl_library.h"

#include <dlfcn.h>

#include "absl/base/const_init.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/exit_guard.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr const char* kNames[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};

absl::StatusOr<const CurlLibrary*> OpenLibrary() {
  void* library = nullptr;
  for (const char* name : kNames) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) {
    return absl::FailedPreconditionError(
        "a model on the network needs libcurl.so.4 or libcurl-gnutls.so.4, and neither can be "
        "opened here (Debian: apt install libcurl4)");
  }
  static CurlLibrary curl;
  const char* missing = nullptr;
  auto find = [&](const char* name, auto* function) {
    void* symbol = dlsym(library, name);
    if (symbol == nullptr && missing == nullptr) missing = name;
    *function = reinterpret_cast<std::remove_reference_t<decltype(*function)>>(symbol);
  };
  decltype(&curl_global_init) global_init;
  find("curl_global_init", &global_init);
  find("curl_easy_init", &curl.easy_init);
  find("curl_easy_cleanup", &curl.easy_cleanup);
  find("curl_easy_setopt", &curl.easy_setopt);
  find("curl_easy_getinfo", &curl.easy_getinfo);
  find("curl_easy_strerror", &curl.easy_strerror);
  find("curl_slist_append", &curl.slist_append);
  find("curl_slist_free_all", &curl.slist_free_all);
  find("curl_multi_init", &curl.multi_init);
  find("curl_multi_cleanup", &curl.multi_cleanup);
  find("curl_multi_setopt", &curl.multi_setopt);
  find("curl_multi_add_handle", &curl.multi_add_handle);
  find("curl_multi_remove_handle", &curl.multi_remove_handle);
  find("curl_multi_perform", &curl.multi_perform);
  find("curl_multi_poll", &curl.multi_poll);
  find("curl_multi_wakeup", &curl.multi_wakeup);
  find("curl_multi_info_read", &curl.multi_info_read);
  if (missing != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("libcurl is too old: it has no ", missing, "; wanted 7.68 or later"));
  }
  if (global_init(CURL_GLOBAL_ALL) != CURLE_OK) {
    return absl::FailedPreconditionError("libcurl: curl_global_init failed");
  }
  // Its TLS library frees at exit() what a transfer uses.
  ExitGuard::StayAheadOf(ExitGuard::Library::kCurl);
  return &curl;
}

}  // namespace

absl::StatusOr<const CurlLibrary*> OpenCurl() {
  static absl::Mutex mutex(absl::kConstInit);
  static const CurlLibrary* opened = nullptr;
  absl::MutexLock lock(&mutex);
  if (opened == nullptr) {
    ASSIGN_OR_RETURN(opened, OpenLibrary());
  }
  return opened;
}

}  // namespace lm
