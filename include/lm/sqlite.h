/* sqlite-lm linked statically into a program that links SQLite:
 *
 *   sqlite3_auto_extension((void (*)(void))sqlite3_lm_init);
 *
 * or, for one connection, sqlite3_lm_init(db, &message, NULL). As a loadable extension (lm0.so) the
 * same function is the entry point that `.load` finds by itself.
 */
#ifndef LM_SQLITE_H_
#define LM_SQLITE_H_

#include <sqlite3.h>

#ifdef __cplusplus
extern "C" {
#endif

struct sqlite3_api_routines;

/* Registers every function and table of sqlite-lm on `db`. Returns SQLITE_OK or
 * SQLITE_OK_LOAD_PERMANENTLY; on an error sets *message (sqlite3_free) if it is not NULL. */
__attribute__((visibility("default"))) int sqlite3_lm_init(sqlite3* db, char** message,
                                                           const struct sqlite3_api_routines* api);

#ifdef __cplusplus
}
#endif

#endif /* LM_SQLITE_H_ */
