// SQLite's interface as the extension sees it: through a table of its routines, which host.h sets.
// Only files of extension/ include it.
#ifndef LM_EXTENSION_HOST_SQLITE_API_H_
#define LM_EXTENSION_HOST_SQLITE_API_H_

// A program that lm_static is part of may have other extensions with a table of that name.
#define sqlite3_api lm_sqlite3_api
#include <sqlite3ext.h>

extern const sqlite3_api_routines* sqlite3_api;

#endif  // LM_EXTENSION_HOST_SQLITE_API_H_
