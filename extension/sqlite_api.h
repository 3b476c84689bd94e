// SQLite's interface as the extension sees it: through the routines that the host hands to
// sqlite3_lm_init (lm0.so), or directly (lm_static, compiled with SQLITE_CORE). Only files of this
// folder include it.
#ifndef LM_EXTENSION_SQLITE_API_H_
#define LM_EXTENSION_SQLITE_API_H_

#include <sqlite3ext.h>

SQLITE_EXTENSION_INIT3

#endif  // LM_EXTENSION_SQLITE_API_H_
