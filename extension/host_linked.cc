// lm_static: SQLite is part of the same program.
#include "extension/host.h"

extern "C" {
// Absent from SQLite before 3.41; a weak reference is then null.
__attribute__((weak)) int sqlite3_is_interrupted(sqlite3*);
// Absent where SQLITE_OMIT_PROGRESS_CALLBACK is.
__attribute__((weak)) void sqlite3_progress_handler(sqlite3*, int, int (*)(void*), void*);
}

namespace lm {

bool AdoptHost(const sqlite3_api_routines*, char**) { return true; }

int InitResult() { return SQLITE_OK; }

IsInterruptedFunction FindIsInterrupted() { return sqlite3_is_interrupted; }

ProgressHandlerFunction FindProgressHandler() { return sqlite3_progress_handler; }

}  // namespace lm
