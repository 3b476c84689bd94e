// lm0.so: SQLite is reached through the table of routines it passes in.
#include "extension/host/host.h"

#include <mutex>

const sqlite3_api_routines* sqlite3_api = nullptr;

namespace lm {
namespace {

constexpr int kVersionWithIsInterrupted = 3041000;

}  // namespace

bool AdoptHost(const sqlite3_api_routines* api, char** message) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (sqlite3_api == nullptr) sqlite3_api = api;
  if (sqlite3_api == api) return true;
  // The caller frees it, with its own sqlite3_free.
  if (message != nullptr) {
    *message = api->mprintf("sqlite-lm: lm0.so serves another copy of SQLite in this process");
  }
  return false;
}

int InitResult() { return SQLITE_OK_LOAD_PERMANENTLY; }

// The table only ever grows at its end, and is_interrupted is the entry that 3.41 added after
// 3.40's last, value_encoding. The headers we build with may be older than the host.
IsInterruptedFunction FindIsInterrupted() {
  if (sqlite3_libversion_number() < kVersionWithIsInterrupted) return nullptr;
  return *reinterpret_cast<const IsInterruptedFunction*>(&sqlite3_api->value_encoding + 1);
}

ProgressHandlerFunction FindProgressHandler() { return sqlite3_api->progress_handler; }

}  // namespace lm
