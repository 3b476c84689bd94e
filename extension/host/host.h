// What differs between the two ways into a program: host_loadable.cc belongs to lm0.so,
// host_linked.cc to lm_static. CMake chooses.
#ifndef LM_EXTENSION_HOST_HOST_H_
#define LM_EXTENSION_HOST_HOST_H_

#include "extension/host/sqlite_api.h"

namespace lm {

// Fills in sqlite3_api (sqlite_api.h): before this, no routine of SQLite can be called. Any number
// of connections of one SQLite may call, from any thread; a second SQLite in the same process (an
// interpreter with one of its own, say) cannot be served by the same library: false, and *message
// (if not null) says so.
bool AdoptHost(const sqlite3_api_routines* api, char** message);

// What sqlite3_lm_init returns where all went well. A library that has threads must never be
// unloaded, so a loaded one stays; sqlite3_auto_extension takes nothing but SQLITE_OK.
int InitResult();

// sqlite3_is_interrupted where the host has it (3.41 and later), else nullptr.
using IsInterruptedFunction = int (*)(sqlite3*);
IsInterruptedFunction FindIsInterrupted();

// sqlite3_progress_handler, or nullptr where the host was built with SQLITE_OMIT_PROGRESS_CALLBACK.
using ProgressHandlerFunction = void (*)(sqlite3*, int, int (*)(void*), void*);
ProgressHandlerFunction FindProgressHandler();

}  // namespace lm

#endif  // LM_EXTENSION_HOST_HOST_H_
