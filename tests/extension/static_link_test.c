/* A C program that links SQLite and sqlite-lm itself: static_link_test MODEL.gguf */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm/sqlite.h"

static void check(int good, const char* what, sqlite3* db) {
  if (good) return;
  fprintf(stderr, "%s: %s\n", what, db != NULL ? sqlite3_errmsg(db) : "");
  exit(1);
}

/* The first value of the first row as text, in static storage. */
static const char* value(sqlite3* db, const char* sql) {
  static char text[1000];
  sqlite3_stmt* statement = NULL;
  check(sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK, sql, db);
  check(sqlite3_step(statement) == SQLITE_ROW, sql, db);
  snprintf(text, sizeof text, "%s", (const char*)sqlite3_column_text(statement, 0));
  check(sqlite3_finalize(statement) == SQLITE_OK, sql, db);
  return text;
}

int main(int argc, char** argv) {
  sqlite3* db = NULL;
  char* message = NULL;
  check(argc == 2 && setenv("LM_MODEL", argv[1], 1) == 0, "usage: static_link_test MODEL.gguf", NULL);

  /* One connection, by hand, and a second time. */
  check(sqlite3_open(":memory:", &db) == SQLITE_OK, "open", db);
  for (int i = 0; i < 2; ++i) {
    check((sqlite3_lm_init(db, &message, NULL) & 0xff) == SQLITE_OK, "sqlite3_lm_init", db);
  }
  check(strcmp(value(db, "SELECT typeof(generate('Hello', NULL, '{\"max_tokens\":3}'))"), "text") == 0,
        "generate", db);
  check(sqlite3_close(db) == SQLITE_OK, "close", db);

  /* All connections. */
  check(sqlite3_auto_extension((void (*)(void))sqlite3_lm_init) == SQLITE_OK, "auto_extension", NULL);
  for (int i = 0; i < 3; ++i) {
    check(sqlite3_open(":memory:", &db) == SQLITE_OK, "open with auto_extension", db);
    check(sqlite3_exec(db, "INSERT INTO temp.lm_settings VALUES ('max_tokens', 2)", NULL, NULL, &message) ==
              SQLITE_OK,
          "lm_settings", db);
    check(strcmp(value(db, "SELECT count(*) FROM lm_each('[\"a\",\"b\"]')"), "2") == 0, "lm_each", db);
    check(sqlite3_exec(db, "SELECT generate(x'00')", NULL, NULL, NULL) == SQLITE_ERROR, "a BLOB", db);
    check(sqlite3_close(db) == SQLITE_OK, "close", db);
  }
  puts("passed");
  return 0;
}
