// lm_static: SQLite is part of the same program.
#include "extension/host.h"

extern "C" {
// Absent from SQLite before 3.41; a weak reference is then null.
__attribute__((weak)) int sqlite3_is_interrupted(sqlite3*);
}

namespace lm {

bool AdoptHost(const sqlite3_api_routines*, char**) { return true; }

int InitResult() { return SQLITE_OK; }

IsInterruptedFunction FindIsInterrupted() { return sqlite3_is_interrupted; }

}  // namespace lm
