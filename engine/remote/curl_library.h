// libcurl, opened when a network model is first used: loading the extension opens no library of
// it, and a machine without one has all else.
#ifndef LM_ENGINE_REMOTE_CURL_LIBRARY_H_
#define LM_ENGINE_REMOTE_CURL_LIBRARY_H_

#include <curl/curl.h>

#include "absl/status/statusor.h"

namespace lm {

struct CurlLibrary {
  decltype(&curl_easy_init) easy_init;
  decltype(&curl_easy_cleanup) easy_cleanup;
  // Through a pointer without curl.h's macro around it: mind the types.
  decltype(&curl_easy_setopt) easy_setopt;
  decltype(&curl_easy_getinfo) easy_getinfo;
  decltype(&curl_easy_strerror) easy_strerror;
  decltype(&curl_slist_append) slist_append;
  decltype(&curl_slist_free_all) slist_free_all;
  decltype(&curl_multi_init) multi_init;
  decltype(&curl_multi_cleanup) multi_cleanup;
  decltype(&curl_multi_setopt) multi_setopt;
  decltype(&curl_multi_add_handle) multi_add_handle;
  decltype(&curl_multi_remove_handle) multi_remove_handle;
  decltype(&curl_multi_perform) multi_perform;
  decltype(&curl_multi_poll) multi_poll;
  decltype(&curl_multi_wakeup) multi_wakeup;
  decltype(&curl_multi_info_read) multi_info_read;
};

// The process's, never closed. FailedPrecondition, naming what was looked for, where there is none,
// or one older than 7.68; what fails may be tried again.
absl::StatusOr<const CurlLibrary*> OpenCurl();

}  // namespace lm

#endif  // LM_ENGINE_REMOTE_CURL_LIBRARY_H_
