/* A host in whose process calls fail: memory, threads, files, maps, sockets (failing_calls.h).
 *
 *   nth_call_test LM0.so MODEL.gguf SCENARIO CALLS once|on|part|interrupted|limit [N]
 *
 * CALLS is the kind: memory, threads, opens, reads, writes, syncs, maps, sockets. `once` fails the
 * n-th of them only, `on` that one and all after it; `part` has them read or write less than they
 * are asked to, `interrupted` has them end with EINTR, and then no step may fail; `limit` (of
 * memory) sets RLIMIT_AS a little higher for each n instead. Each n has a child process of its own,
 * forked before there is a thread. A child does the scenario's armed steps, of which each must give
 * the right answer or an error; then nothing fails any more, and every step must work. No child may
 * end by a signal or by exit() of somebody else, hang, keep memory or open files, or give another
 * answer without an error. With N: only that point, in this process, for a debugger.
 *
 * LM_FAULT_POINTS says how many points of a scenario are tried, evenly spread ("all": each of
 * them). Everything but memory, two minutes of one core, and memory, an hour:
 *
 *   LM_FAULT_POINTS=all ctest --test-dir build/release -R fault_calls_
 *   LM_FAULT_POINTS=all ctest --test-dir build/release -R fault_memory_ --timeout 3600
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <malloc.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sqlite3.h>

#include "canned_server.h"
#include "failing_calls.h"
#include "lm/lm.h"

/* ---- what a scenario is made of ---- */

enum { kMaxSteps = 40, kTextBytes = 8192 };

/* How an answer may differ from the right one without an error of the statement. */
typedef enum {
  kExact,
  kRows,  /* rows key, value, error: a value may be missing where its error says why */
  kDone,  /* only that it works */
  kHold,  /* a statement that is left at its first row */
  kClose, /* the connection or engine */
  kLoad,
} Rule;

typedef struct {
  const char* text; /* SQL, or the options of a call of the C API */
  Rule rule;
} Step;

typedef struct {
  const char* name;
  Step setup[8];
  Step armed[16];
  Step after[10]; /* when nothing fails any more */
  bool again;     /* then the armed ones, too */
  bool exits;     /* armed until the process is gone */
  bool waits;     /* where sockets fail, before it asks once more: several points at once */
} Scenario;

/* Of a child, or of the run that counts; in memory that all processes share. */
typedef struct {
  long calls;
  int kept_files;
  size_t kept_bytes;
  int num_outcomes;
  bool reached_exit;
  char failure[1024];
  char step[256];
  struct {
    char text[kTextBytes];
  } outcomes[kMaxSteps * 2];
} Report;

static Report* right; /* of the run in which nothing fails */
static Report* report;
static int outcome;
static bool counting;
static bool may_fail; /* while calls do: an error is an outcome, too */

static void Fail(const char* format, ...) {
  if (report->failure[0] != '\0') return;
  va_list args;
  va_start(args, format);
  vsnprintf(report->failure, sizeof report->failure, format, args);
  va_end(args);
}

/* The text of one answer, of bounded length, without an allocation. */
typedef struct {
  char text[kTextBytes];
  size_t used;
} Text;

static void Add(Text* text, const char* format, ...) {
  va_list args;
  va_start(args, format);
  const int bytes =
      vsnprintf(text->text + text->used, sizeof text->text - text->used, format, args);
  va_end(args);
  if (bytes > 0) text->used += (size_t)bytes;
  if (text->used >= sizeof text->text) abort(); /* kTextBytes is too small for the scenario */
}

/* A line of kRows: key, value and error between tabs. */
static bool RowMayBe(const char* line, size_t bytes) {
  const char* value = memchr(line, '\t', bytes);
  if (value == NULL) return false;
  const char* error = memchr(value + 1, '\t', bytes - (value + 1 - line));
  if (error == NULL) return false;
  const bool no_value = error - (value + 1) == 4 && memcmp(value + 1, "NULL", 4) == 0;
  const size_t error_bytes = bytes - (error + 1 - line);
  return no_value && error_bytes > 0 && !(error_bytes == 4 && memcmp(error + 1, "NULL", 4) == 0);
}

static bool Matches(const char* got, const char* want, Rule rule) {
  if (rule != kRows) return strcmp(got, want) == 0;
  while (*got != '\0' && *want != '\0') {
    const size_t got_bytes = strcspn(got, "\n"), want_bytes = strcspn(want, "\n");
    const bool same = got_bytes == want_bytes && memcmp(got, want, got_bytes) == 0;
    const size_t key_bytes = strcspn(want, "\t") + 1;
    if (!same && (strncmp(got, want, key_bytes) != 0 || !RowMayBe(got, got_bytes))) return false;
    got += got_bytes + (got[got_bytes] != '\0');
    want += want_bytes + (want[want_bytes] != '\0');
  }
  return *got == *want;
}

/* Takes the outcome of a step: its answer, or the error it gave (else NULL). */
static void Take(const Step* step, const char* what, const Text* answer, const char* error) {
  if (outcome == kMaxSteps * 2) abort();
  char* place = right->outcomes[outcome++].text;
  if (counting) {
    if (error != NULL) Fail("%s: fails although nothing else does: %s", what, error);
    memcpy(place, answer->text, sizeof answer->text);
    return;
  }
  if (error != NULL) {
    if (!CallsMayFail()) Fail("%s: still fails when nothing does: %s", what, error);
    if (!may_fail) Fail("%s: fails for a call that is to be made again: %s", what, error);
    if (error[0] == '\0') Fail("%s: an error without a text", what);
    return;
  }
  const Rule rule = CallsMayFail() && may_fail ? step->rule : kExact;
  if (step->rule != kDone && !Matches(answer->text, place, rule)) {
    if (CallsMayFail() || step->rule != kRows || !Matches(answer->text, place, kRows)) {
      Fail("%s: without an error\n--- got\n%.300s--- instead of\n%.300s", what, answer->text,
           place);
    }
  }
}

/* ---- through SQL ---- */

static const char* library;
static const char* model;
static sqlite3* db;

static const char* OpenDatabase(void) {
  if (db != NULL) return NULL;
  if (sqlite3_open("fault.db", &db) == SQLITE_OK) {
    sqlite3_busy_timeout(db, 1000);
    if (sqlite3_enable_load_extension(db, 1) == SQLITE_OK) return NULL;
  }
  sqlite3_close(db);
  db = NULL;
  return "the database cannot be opened";
}

static const char* RunSql(const char* sql, bool hold, Text* answer) {
  static char error[512];
  sqlite3_stmt* statement = NULL;
  int code = SQLITE_OK;
  error[0] = '\0';
  while (code == SQLITE_OK && *sql != '\0') {
    code = sqlite3_prepare_v2(db, sql, -1, &statement, &sql);
    if (code != SQLITE_OK || statement == NULL) break;
    while ((code = sqlite3_step(statement)) == SQLITE_ROW) {
      const int columns = sqlite3_column_count(statement);
      for (int i = 0; i < columns; ++i) {
        const bool null = sqlite3_column_type(statement, i) == SQLITE_NULL;
        const char* text = null ? "NULL" : (const char*)sqlite3_column_text(statement, i);
        if (text == NULL) { /* SQLite's own copy could not be made */
          snprintf(error, sizeof error, "out of memory");
          sqlite3_finalize(statement);
          return error;
        }
        Add(answer, "%s%s", text, i + 1 < columns ? "\t" : "\n");
      }
      if (hold) return NULL;
    }
    if (code != SQLITE_DONE) {
      snprintf(error, sizeof error, "%d: %s", code, sqlite3_errmsg(db));
    }
    sqlite3_finalize(statement);
    code = code == SQLITE_DONE ? SQLITE_OK : code;
  }
  if (code == SQLITE_OK) return NULL;
  if (error[0] == '\0') snprintf(error, sizeof error, "%d: %s", code, sqlite3_errmsg(db));
  return error;
}

static const char* LoadExtension(void) {
  static char error[512];
  const char* failed = OpenDatabase();
  if (failed != NULL) return failed;
  char* message = NULL;
  if (sqlite3_load_extension(db, library, "sqlite3_lm_init", &message) == SQLITE_OK) return NULL;
  snprintf(error, sizeof error, "%s", message != NULL ? message : "out of memory");
  sqlite3_free(message);
  return error;
}

static void RunSqlStep(const Step* step) {
  Text answer = {.used = 0};
  const char* error = NULL;
  snprintf(report->step, sizeof report->step, "%s%.200s", CallsMayFail() ? "" : "(unarmed) ",
           step->rule == kClose  ? "close"
           : step->rule == kLoad ? "load"
                                 : step->text);
  if (step->rule == kClose) {
    if (db != NULL && sqlite3_close(db) != SQLITE_OK) Fail("close: %s", sqlite3_errmsg(db));
    db = NULL;
  } else if (step->rule == kLoad) {
    error = LoadExtension();
  } else {
    error = OpenDatabase();
    if (error == NULL) error = RunSql(step->text, step->rule == kHold, &answer);
  }
  Take(step, report->step, &answer, error);
}

#define FEW "'{\"max_tokens\":5}'"
#define SETTINGS                                                       \
  {                                                                    \
    "INSERT INTO temp.lm_settings(key, value) VALUES ('threads', 3), " \
    "('kv_bytes', 400000)",                                            \
        kExact                                                         \
  }
#define TABLE                                                                              \
  {                                                                                        \
    "CREATE TABLE t(id INTEGER PRIMARY KEY, body TEXT, y TEXT);"                           \
    "INSERT INTO t(body) VALUES ('rain'), ('sun'), ('snow'), ('wind'), ('hail'), ('fog')", \
        kExact                                                                             \
  }
#define WARM \
  { "SELECT generate('warm', NULL, " FEW ")", kExact }

static char convert_model[PATH_MAX + 80], convert_again[PATH_MAX + 80]; /* once it is known */
static char insert_remote_model[200];                                   /* once there is a server */
#define REMOTE \
  { insert_remote_model, kExact }

#define DOWNLOAD                                                                  \
  {                                                                               \
    "INSERT OR REPLACE INTO temp.lm_models(name, path, options) VALUES ('tiny', " \
    "'hf:org/tiny:Q8_0', '{\"threads\":2,\"kv_bytes\":400000}')",                 \
        kExact                                                                    \
  }
#define ASK_DOWNLOADED \
  { "SELECT generate('rain', 'A poet.', '{\"model\":\"tiny\",\"max_tokens\":5}')", kExact }
#define PACKS \
  { "INSERT INTO temp.lm_settings(key, value) VALUES ('pack_cache', 'packs')", kExact }
#define STORE \
  { "INSERT INTO temp.lm_settings(key, value) VALUES ('prefix_store', 'store')", kExact }
#define LONG_SYSTEM "replace(hex(zeroblob(24)), '00', 'A poet. ')"
#define EXPORT(name) \
  { "SELECT lines FROM lm_batch_export('fill', '{\"model\":\"m\",\"path\":\"" name "\"}')", kExact }

static const Scenario kSqlScenarios[] = {
    {.name = "sql_load",
     .armed = {{NULL, kLoad},
               SETTINGS,
               {"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {NULL, kClose}},
     .again = true},
    {.name = "sql_generate",
     .setup = {{NULL, kLoad}, SETTINGS, WARM},
     .armed = {{"SELECT generate('rain', 'A poet.', '{\"max_tokens\":5,\"temperature\":0.8,"
                "\"seed\":3,\"top_p\":0.9,\"stop\":[\"zz\"]}')",
                kExact},
               {"SELECT lm_classify('rain', '[\"wet\",\"dry\"]')", kExact},
               {"SELECT lm_if('rain', 'Is it wet?'), lm_score('rain', 'wet')", kExact},
               {"SELECT lm_token_count('a few words'), lm_tokenize('rain'), lm_render('x', 'y')",
                kExact},
               {"SELECT lm_detokenize(lm_tokenize('rain')), hex(lm_embed('rain'))", kExact},
               {"SELECT lm_prompt('{{*}} {{a}}', '{\"a\":1,\"b\":2}', lm_field_order('{\"b\":3}'))",
                kExact},
               {"INSERT INTO temp.lm_examples VALUES ('e', 'sun', 'dry')", kExact},
               {"SELECT lm_classify('rain', '[\"wet\",\"dry\"]', NULL, '{\"examples\":[{\"prompt\":"
                "\"a\",\"answer\":\"dry\"}]}')",
                kExact},
               {"SELECT value, label, probability FROM json_each('[1,2,3]'), "
                "lm_classify_scores(value, '[\"wet\",\"dry\"]', NULL, '{\"cache\":false}')",
                kExact},
               {"SELECT generate('rain', NULL, '{\"max_tokens\":4,\"cache\":false}')", kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad}, SETTINGS, WARM},
     .again = true},
    {.name = "sql_constraint",
     .setup = {{NULL, kLoad}, SETTINGS, WARM},
     .armed =
         {{"SELECT generate('a', NULL, '{\"max_tokens\":30,\"regex\":\"(ab|cd){1,3}[x-z]?\"}')",
           kExact},
          {"SELECT generate_json('a', '{\"type\":\"object\",\"properties\":{\"k\":{\"enum\":"
           "[\"red\",\"blue\"]},\"n\":{\"type\":\"integer\",\"minimum\":1,\"maximum\":12}},"
           "\"required\":[\"k\",\"n\"],\"additionalProperties\":false}', NULL, "
           "'{\"max_tokens\":60}')",
           kExact},
          {"SELECT generate('a', NULL, '{\"max_tokens\":20,\"grammar\":\"root ::= [ab] "
           "tail\\ntail ::= \\\"c\\\" | \\\"d\\\" tail?\"}')",
           kExact},
          {NULL, kClose}},
     .after = {{NULL, kLoad}, SETTINGS, WARM},
     .again = true},
    {.name = "sql_rows",
     .setup = {{NULL, kLoad}, SETTINGS, WARM, TABLE},
     .armed = {{"SELECT key, value, error FROM lm_each('[\"rain\",\"sun\",\"snow\",\"wind\"]', "
                "'A poet.', " FEW ")",
                kRows},
               {"SELECT id, generate(body, NULL, '{\"max_tokens\":4}') FROM t", kExact},
               {"UPDATE t SET y = lm_classify(body, '[\"wet\",\"dry\"]')", kExact},
               {"SELECT id, value, error FROM lm_query('SELECT id, body FROM t', " FEW ")", kRows},
               {"SELECT id, lm_map(body, NULL, '{\"max_tokens\":3}') OVER (ORDER BY id ROWS "
                "BETWEEN CURRENT ROW AND 3 FOLLOWING) FROM t",
                kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad}, SETTINGS, WARM},
     .again = true},
    /* Two that look ahead in one statement. */
    {.name = "sql_places",
     .setup = {{NULL, kLoad}, SETTINGS, WARM, TABLE},
     .armed = {{"SELECT id, label, generate(body, NULL, '{\"max_tokens\":2}') FROM t, "
                "lm_classify_scores(body, '[\"wet\",\"dry\"]') WHERE id < 3",
                kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad}, SETTINGS, WARM},
     .again = true},
    {.name = "sql_documents",
     .setup = {{NULL, kLoad}, SETTINGS, WARM, TABLE},
     .armed = {{"SELECT lm_summarize(replace(hex(zeroblob(150)), '0', 'word '), "
                "'{\"max_tokens\":6}')",
                kExact},
               {"SELECT lm_agg(body, 'What is this?', '{\"max_tokens\":6}') FROM t", kExact},
               {"SELECT n, start, tokens FROM lm_chunks('One. Two. Three four five.', 6, 1)",
                kExact},
               {"SELECT group_concat(piece, '') FROM lm_stream('rain', NULL, " FEW ")", kExact},
               {"SELECT lm_prefetch(body, NULL, " FEW ") FROM t", kExact},
               {"WITH s AS MATERIALIZED (SELECT lm_submit('sun', NULL, " FEW ") AS ticket) "
                "SELECT lm_await(ticket) FROM s",
                kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad}, SETTINGS, WARM},
     .again = true},
    {.name = "sql_tables",
     .setup = {{NULL, kLoad}, SETTINGS, WARM},
     .armed = {{"SELECT count(*) FROM lm_models", kExact},
               {"SELECT count(*) > 0 FROM lm_settings", kExact},
               {"SELECT count(*) FROM lm_stats", kExact},
               {"SELECT count(*) > 0 FROM lm_requests", kExact},
               {"SELECT count(*) > 0 FROM lm_cache", kExact},
               {"SELECT count(*) > 0 FROM lm_memo", kExact},
               {"SELECT length(lm_debug()) > 0, length(lm_version()) > 0", kExact},
               {"SELECT length(lm_logprobs('rain')) > 0", kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad}, SETTINGS, WARM},
     .again = true},
#define JOB                                                                                \
  {                                                                                        \
    "INSERT INTO lm_jobs(name, query, target, options) SELECT 'fill', "                    \
    "'SELECT id, body || hex(zeroblob(60)) FROM t WHERE y IS NULL', "                      \
    "'UPDATE t SET y = :value WHERE id = :id', "                                           \
    "'{\"max_tokens\":4}' WHERE NOT EXISTS (SELECT 1 FROM lm_jobs WHERE name = 'fill')",   \
        kExact                                                                             \
  }
#define RUN_JOB \
  { "SELECT max(total) FROM lm_run('fill', '{\"outage_seconds\":1}')", kDone }
    {.name = "sql_job",
     .setup = {{NULL, kLoad}, SETTINGS, WARM, TABLE},
     .armed = {JOB, RUN_JOB, {NULL, kClose}},
     .after = {{NULL, kLoad},
               SETTINGS,
               JOB,
               RUN_JOB,
               {"SELECT t.id, t.y, j.error FROM t LEFT JOIN lm_job_rows j ON j.job = 'fill' AND "
                "j.id = t.id ORDER BY t.id",
                kRows},
               {"SELECT count(*) FROM lm_job_rows WHERE state NOT IN ('done', 'failed')", kExact},
               {"PRAGMA integrity_check", kExact}}},
#define MEMO \
  { "INSERT INTO temp.lm_settings(key, value) VALUES ('memo', 'memo.db')", kExact }
    {.name = "sql_memo",
     .setup = {{NULL, kLoad}, SETTINGS, WARM},
     .armed = {MEMO,
               {"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {"SELECT key, value, error FROM lm_each('[\"rain\",\"sun\"]', NULL, " FEW ")",
                kRows},
               {NULL, kClose}},
     .after = {{NULL, kLoad},
               SETTINGS,
               MEMO,
               {"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {"SELECT key, value, error FROM lm_each('[\"rain\",\"sun\"]', NULL, " FEW ")",
                kRows}}},
    {.name = "sql_files",
     .setup = {{NULL, kLoad}, SETTINGS, TABLE, JOB},
     .armed = {PACKS,
               {"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {convert_model, kExact},
               {"SELECT count(*) FROM lm_inspect('q4.gguf') WHERE problem IS NULL", kDone},
               EXPORT("rows"),
               {NULL, kClose}},
     .after = {{NULL, kLoad},
               SETTINGS,
               PACKS,
               {"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {convert_again, kExact},
               {"SELECT count(*) FROM lm_inspect('again.gguf') WHERE problem IS NULL", kExact},
               EXPORT("again")}},
    {.name = "sql_store",
     .setup = {{NULL, kLoad},
               SETTINGS,
               STORE,
               {"SELECT lm_prefill(NULL, " LONG_SYSTEM ") ->> 'place'", kExact}},
     .armed = {{"UPDATE temp.lm_settings SET value = 2 WHERE key = 'threads'", kExact},
               {"SELECT generate('rain', " LONG_SYSTEM ", " FEW ")", kExact},
               {"SELECT lm_prefill('snow', " LONG_SYSTEM " || 'Be brief.')", kDone},
               {"SELECT generate('snow', " LONG_SYSTEM " || 'Be brief.', " FEW ")", kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad},
               SETTINGS,
               STORE,
               {"SELECT generate('rain', " LONG_SYSTEM ", " FEW ")", kExact},
               {"SELECT generate('snow', " LONG_SYSTEM " || 'Be brief.', " FEW ")", kExact}}},
    {.name = "sql_remote",
     .setup = {{NULL, kLoad}, REMOTE, WARM},
     .armed = {{"SELECT generate('rain', 'A poet.', " FEW ")", kExact},
               {"SELECT lm_classify('rain', '[\"wet\",\"dry\"]')", kExact},
               {"SELECT lm_classify('unsure', '[\"wet\",\"dry\"]')", kExact},
               {"SELECT lm_if('rain', 'Is it wet?'), lm_score('rain', 'wet')", kExact},
               {"SELECT hex(lm_embed('rain')), lm_rerank('wet?', 'rain')", kExact},
               {"SELECT lm_token_count('a few words')", kExact},
               {"SELECT key, value, error FROM lm_each('[\"rain\",\"sun again\",\"snow\","
                "\"wind again\"]', 'A poet.', " FEW ")",
                kRows},
               {"SELECT group_concat(piece, '') FROM lm_stream('rain', NULL, " FEW ")", kExact},
               {NULL, kClose}},
     .after = {{NULL, kLoad}, REMOTE, WARM},
     .again = true},
    {.name = "sql_download",
     .setup = {{NULL, kLoad}},
     .armed = {DOWNLOAD, ASK_DOWNLOADED, {NULL, kClose}},
     .after = {{NULL, kLoad}, DOWNLOAD, ASK_DOWNLOADED},
     .waits = true},
    {.name = "sql_exit",
     .setup = {{NULL, kLoad},
               SETTINGS,
               MEMO,
               WARM,
               {"SELECT key FROM lm_each('[\"a\",\"b\",\"c\"]', NULL, '{\"max_tokens\":30}')",
                kHold}},
     .exits = true},
};

/* ---- through the C API ---- */

static struct {
  lm_engine* (*open)(const char*, const char*, lm_error**);
  void (*close)(lm_engine*);
  char* (*generate)(lm_engine*, const char*, const char*, const char*, lm_error**);
  int (*batch)(lm_engine*, const char* const*, size_t, const char*, const char*, char**,
               lm_error**);
  int64_t (*tokenize)(lm_engine*, const char*, int32_t*, size_t, lm_error**);
  const char* (*message)(const lm_error*);
  void (*free_error)(lm_error*);
  void (*free_string)(char*);
} lm;
static lm_engine* engine;

/* The error's text; frees it. */
static const char* MessageOf(lm_error* error, const char* missing) {
  static char text[512];
  if (error == NULL) return missing;
  snprintf(text, sizeof text, "%s", lm.message(error));
  lm.free_error(error);
  return text;
}

#define OPEN \
  { "open", kLoad }
#define OPENED                                                                                \
  if (engine == NULL) engine = lm.open(model, "{\"threads\":3,\"kv_bytes\":400000}", &error); \
  if (engine == NULL) return MessageOf(error, "")

static const char* Generate(const char* options, Text* answer) {
  lm_error* error = NULL;
  OPENED;
  char* text = lm.generate(engine, "rain", "A poet.", options, &error);
  if (text == NULL) return MessageOf(error, "");
  if (error != NULL) Fail("generate: an error beside an answer");
  Add(answer, "%s\n", text);
  lm.free_string(text);
  return NULL;
}

static const char* Batch(Text* answer) {
  static const char* const kPrompts[] = {"rain", "sun", "snow", "wind"};
  char* answers[4];
  lm_error* error = NULL;
  OPENED;
  const int failures =
      lm.batch(engine, kPrompts, 4, "A poet.", "{\"max_tokens\":5}", answers, &error);
  int missing = 0;
  for (int i = 0; i < 4; ++i) {
    missing += answers[i] == NULL;
    Add(answer, "%d\t%s\t%s\n", i, answers[i] != NULL ? answers[i] : "NULL",
        answers[i] != NULL ? "NULL" : "failed");
    lm.free_string(answers[i]);
  }
  if (missing != (failures < 0 ? 4 : failures)) {
    Fail("batch: %d failures, %d answers missing", failures, missing);
  }
  if ((failures != 0) != (error != NULL))
    Fail("batch: %d failures, %s", failures, MessageOf(error, "no error"));
  lm.free_error(error);
  return NULL;
}

static const char* Tokenize(Text* answer) {
  int32_t tokens[32];
  lm_error* error = NULL;
  OPENED;
  const int64_t n = lm.tokenize(engine, "a few words", tokens, 32, &error);
  if (n < 0) return MessageOf(error, "");
  for (int i = 0; i < n; ++i) Add(answer, "%d ", tokens[i]);
  return NULL;
}

static void RunCStep(const Step* step) {
  Text answer = {.used = 0};
  const char* error = NULL;
  snprintf(report->step, sizeof report->step, "%s%s", CallsMayFail() ? "" : "(unarmed) ",
           step->rule == kClose ? "close" : step->text);
  if (step->rule == kClose) {
    lm.close(engine);
    engine = NULL;
  } else if (step->rule == kLoad) {
    lm_error* why = NULL;
    if (engine == NULL) engine = lm.open(model, "{\"threads\":3,\"kv_bytes\":400000}", &why);
    if (engine == NULL) error = MessageOf(why, "");
  } else if (strcmp(step->text, "batch") == 0) {
    error = Batch(&answer);
  } else if (strcmp(step->text, "tokenize") == 0) {
    error = Tokenize(&answer);
  } else {
    error = Generate(step->text, &answer);
  }
  Take(step, report->step, &answer, error);
}

static const Scenario kCScenarios[] = {
    {.name = "c_load",
     .armed = {OPEN, {"{\"max_tokens\":3}", kExact}, {NULL, kClose}},
     .again = true},
    {.name = "c_generate",
     .setup = {OPEN},
     .armed = {{"{\"max_tokens\":6}", kExact},
               {"{\"max_tokens\":6,\"temperature\":0.9,\"top_k\":5,\"seed\":2,\"stop\":[\"q\"]}",
                kExact},
               {"{\"max_tokens\":20,\"regex\":\"[ab]{2,4}c?\"}", kExact},
               {"{\"max_tokens\":20,\"choices\":[\"red\",\"blue\"]}", kExact},
               {"{\"max_tokens\":40,\"schema\":{\"type\":\"array\",\"items\":{\"enum\":[1,2]},"
                "\"maxItems\":2}}",
                kExact},
               {NULL, kClose}},
     .again = true},
    {.name = "c_batch",
     .setup = {OPEN},
     .armed = {{"batch", kRows}, {"tokenize", kExact}, {"batch", kRows}, {NULL, kClose}},
     .again = true},
    {.name = "c_exit", .setup = {OPEN, {"{\"max_tokens\":6}", kExact}}, .exits = true},
};

static bool BindC(void* handle) {
  *(void**)&lm.open = dlsym(handle, "lm_engine_open");
  *(void**)&lm.close = dlsym(handle, "lm_engine_close");
  *(void**)&lm.generate = dlsym(handle, "lm_generate");
  *(void**)&lm.batch = dlsym(handle, "lm_generate_batch");
  *(void**)&lm.tokenize = dlsym(handle, "lm_tokenize");
  *(void**)&lm.message = dlsym(handle, "lm_error_message");
  *(void**)&lm.free_error = dlsym(handle, "lm_error_free");
  *(void**)&lm.free_string = dlsym(handle, "lm_string_free");
  return lm.open != NULL && lm.free_string != NULL;
}

/* ---- a child ---- */

static bool through_sql;

static void RunSteps(const Step* steps, int num_steps) {
  for (int i = 0; i < num_steps; ++i) {
    if (steps[i].text == NULL && steps[i].rule == kExact) return; /* the end of the list */
    (through_sql ? RunSqlStep : RunCStep)(&steps[i]);
  }
}
#define RUN_STEPS(steps) RunSteps(steps, sizeof(steps) / sizeof((steps)[0]))

static rlim_t AddressSpace(void) {
  char text[64] = {0};
  int file = open("/proc/self/statm", O_RDONLY);
  if (file < 0 || read(file, text, sizeof text - 1) <= 0) return 0;
  close(file);
  return strtoull(text, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE);
}

static void SetLimit(rlim_t bytes) {
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = bytes;
  setrlimit(RLIMIT_AS, &limit);
}

/* Registered before any other handler of exit(), and so the last of them. */
static void NoteCount(void) {
  if (report != NULL && CallsMayFail()) report->calls = CallsSeen();
}

/* Everything in the current directory and in its folders. */
static void RemoveFiles(void) {
  static const char* const kFolders[] = {".", "packs", "store", "cache/hf/org/tiny"};
  for (size_t i = 0; i < sizeof kFolders / sizeof kFolders[0]; ++i) {
    DIR* folder = opendir(kFolders[i]);
    if (folder == NULL) continue;
    for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
      if (entry->d_name[0] != '.' || entry->d_type == DT_REG) {
        unlinkat(dirfd(folder), entry->d_name, 0);
      }
    }
    closedir(folder);
  }
}

/* Connections that are kept for the next request are not among them. */
static int OpenFiles(void) {
  int num_files = 0;
  DIR* folder = opendir("/proc/self/fd");
  if (folder == NULL) return 0;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    char target[16] = {0};
    const ssize_t bytes = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
    num_files += bytes > 0 && strncmp(target, "socket:", 7) != 0;
  }
  closedir(folder);
  return num_files;
}

/* Point `n` of the scenario; 0: nothing fails. */
static void RunPoint(const Scenario* scenario, CallKind kind, const char* mode, long n) {
  static const long kLimitStep = 96 << 10;
  const bool limited = strcmp(mode, "limit") == 0 && n > 0;
  counting = n == 0;
  outcome = 0;
  RemoveFiles();
  RUN_STEPS(scenario->setup);
  const Manner known = FindManner(mode);
  const Manner manner = known != kNumManners ? known : kOnce; /* `limit` counts, and fails none */
  may_fail = manner != kPart && manner != kInterrupted;
  FailCalls(kind, limited ? 0 : n, manner);
  if (limited) SetLimit(AddressSpace() + (rlim_t)(n - 1) * kLimitStep);
  RUN_STEPS(scenario->armed);
  if (scenario->exits) {
    report->reached_exit = true;
    return; /* with all open */
  }
  if (limited) SetLimit(RLIM_INFINITY);
  NoteCount();
  StopFailingCalls();
  RUN_STEPS(scenario->after);
  if (scenario->again) RUN_STEPS(scenario->armed);
  const Step last = {NULL, kClose};
  (through_sql ? RunSqlStep : RunCStep)(&last);
  report->kept_bytes = mallinfo2().uordblks + mallinfo2().hblkhd;
  if (!counting && report->kept_bytes > right->kept_bytes + (64 << 10)) {
    Fail("%zu bytes are kept, %zu where nothing fails", report->kept_bytes, right->kept_bytes);
  }
  report->kept_files = OpenFiles();
  if (!counting && report->kept_files > right->kept_files) {
    Fail("%d files stay open, %d where nothing fails", report->kept_files, right->kept_files);
  }
  report->reached_exit = true;
}

/* Far beyond what a point takes where others have the machine: some 0.1 s of its own. */
enum { kPatienceSeconds = 60, kLastPatienceSeconds = 240 };

/* True where `child` ended within `seconds`; else it is still there. */
static bool Ends(pid_t child, int seconds, int* status) {
  sigset_t child_ends;
  sigemptyset(&child_ends);
  sigaddset(&child_ends, SIGCHLD);
  const time_t begin = time(NULL);
  for (;;) {
    const pid_t ended = waitpid(child, status, WNOHANG);
    if (ended == child) return true;
    if (ended != 0) abort();
    const time_t left = begin + seconds - time(NULL);
    if (left <= 0) return false;
    const struct timespec patience = {.tv_sec = left};
    sigtimedwait(&child_ends, NULL, &patience);
  }
}

/* What the threads of `child` are doing, where there is a debugger. */
static void PrintStacks(pid_t child) {
  char command[160];
  snprintf(command, sizeof command,
           "gdb -p %d -batch -ex 'thread apply all backtrace 24' 2>/dev/null | grep '^[T#]'",
           (int)child);
  if (system(command) != 0) printf("(no debugger to print the stacks with)\n");
}

/* What the n-th call's failing did, into *report. A point that does not end is tried once
 * more, with more time, before it is said to hang. */
static bool TryPoint(const Scenario* scenario, CallKind kind, const char* mode, long n) {
  int status = 0;
  bool hangs = true;
  for (int try = 0; hangs && try < 2; ++try) {
    memset(report, 0, offsetof(Report, outcomes));
    fflush(stdout);
    const pid_t child = fork();
    if (child < 0) abort();
    if (child == 0) {
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, NULL);
      if (getenv("LM_FAULT_VERBOSE") == NULL) dup2(open("/dev/null", O_WRONLY), STDERR_FILENO);
      RunPoint(scenario, kind, mode, n);
      exit(0);
    }
    hangs = !Ends(child, try == 0 ? kPatienceSeconds : kLastPatienceSeconds, &status);
    if (!hangs) break;
    if (try == 1) {
      printf("%s %s %ld does not end; its threads:\n", scenario->name, mode, n);
      fflush(stdout);
      PrintStacks(child);
    }
    kill(child, SIGKILL);
    if (waitpid(child, &status, 0) != child) abort();
  }
  const char* where = report->reached_exit ? "exit" : report->step;
  if (hangs) {
    report->failure[0] = '\0';
    Fail("hang in: %s", where);
  } else if (WIFSIGNALED(status)) {
    report->failure[0] = '\0';
    Fail("signal %s in: %s", strsignal(WTERMSIG(status)), where);
  } else if (WEXITSTATUS(status) != 0 || !report->reached_exit) {
    Fail("the process ended itself, status %d, in: %s", WEXITSTATUS(status), report->step);
  }
  return report->failure[0] == '\0';
}

/* Of the points first, first + stride, ... up to `last`: how many fail, 255 at most, which is what
 * an exit status can say. */
static int TryPoints(const Scenario* scenario, CallKind kind, const char* calls, const char* mode,
                     long first, long stride, long last) {
  int failures = 0;
  for (long n = first; n <= last; n += stride) {
    if (TryPoint(scenario, kind, mode, n)) continue;
    if (failures < 255) ++failures;
    printf("%s %s %s %ld: %s\n", scenario->name, calls, mode, n, report->failure);
  }
  return failures;
}

static void* Shared(size_t bytes) {
  void* memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

static const Scenario* FindScenario(const char* name) {
  for (size_t i = 0; i < sizeof kSqlScenarios / sizeof kSqlScenarios[0]; ++i) {
    through_sql = true;
    if (strcmp(kSqlScenarios[i].name, name) == 0) return &kSqlScenarios[i];
  }
  for (size_t i = 0; i < sizeof kCScenarios / sizeof kCScenarios[0]; ++i) {
    through_sql = false;
    if (strcmp(kCScenarios[i].name, name) == 0) return &kCScenarios[i];
  }
  return NULL;
}

int main(int argc, char** argv) {
  const Scenario* scenario = argc >= 6 ? FindScenario(argv[3]) : NULL;
  const CallKind kind = argc >= 6 ? FindCallKind(argv[4]) : kNumCallKinds;
  const bool known =
      argc >= 6 && (FindManner(argv[5]) != kNumManners || strcmp(argv[5], "limit") == 0);
  if (scenario == NULL || kind == kNumCallKinds || !known) {
    fprintf(stderr,
            "usage: nth_call_test LM0.so MODEL.gguf SCENARIO CALLS "
            "once|on|part|interrupted|limit [N]\n");
    return 2;
  }
  sigset_t child_ends; /* waited for, not handled */
  sigemptyset(&child_ends);
  sigaddset(&child_ends, SIGCHLD);
  sigprocmask(SIG_BLOCK, &child_ends, NULL);
  atexit(NoteCount);
  library = realpath(argv[1], NULL);
  model = realpath(argv[2], NULL);
  void* handle = library != NULL ? dlopen(library, RTLD_NOW) : NULL;
  if (model == NULL || handle == NULL || !PrepareFailingCalls() || !BindC(handle) ||
      setenv("LM_MODEL", model, 1) != 0) {
    fprintf(stderr, "%s\n", handle == NULL ? dlerror() : "no such model");
    return 2;
  }
  static const char kConvert[] = "SELECT length(lm_convert('%s', '%s', 'Q4_0')) > 0";
  snprintf(convert_model, sizeof convert_model, kConvert, model, "q4.gguf");
  snprintf(convert_again, sizeof convert_again, kConvert, model, "again.gguf");
  if (strcmp(scenario->name, "sql_remote") == 0 || strcmp(scenario->name, "sql_download") == 0) {
    const int port = StartCannedServer(model);
    if (port < 0) return 2;
    char endpoint[64];
    snprintf(endpoint, sizeof endpoint, "http://127.0.0.1:%d", port);
    if (setenv("HF_ENDPOINT", endpoint, 1) != 0 || setenv("LM_CACHE", "cache", 1) != 0) return 2;
    snprintf(insert_remote_model, sizeof insert_remote_model,
             "INSERT INTO temp.lm_models(name, path, options) VALUES ('default', "
             "'http://127.0.0.1:%d/v1', '{\"retries\":2}')",
             port);
  }
  /* In memory where there is such a place: each child writes a database, and syncs it. */
  char shared[] = "/dev/shm/nth_call_XXXXXX", temporary[] = "/tmp/nth_call_XXXXXX";
  const char* directory = mkdtemp(shared);
  if (directory == NULL) directory = mkdtemp(temporary);
  if (directory == NULL || chdir(directory) != 0) return 2;

  const char* mode = argv[5];
  right = Shared(sizeof *right);
  report = right;
  if (!TryPoint(scenario, kind, mode, 0)) {
    printf("%s: %s\n", scenario->name, right->failure);
    return 1;
  }
  report = Shared(sizeof *report);
  if (argc > 6) {
    RunPoint(scenario, kind, mode, atol(argv[6]));
    printf("%s\n", report->failure);
    return report->failure[0] != '\0';
  }

  const char* wanted = getenv("LM_FAULT_POINTS");
  if (right->calls == 0) {
    printf("%s: no call of %s was seen\n", scenario->name, argv[4]);
    return 1;
  }
  const bool all = wanted != NULL && strcmp(wanted, "all") == 0;
  /* Threads make a point more or less from run to run. */
  const long points = strcmp(mode, "limit") == 0 ? 90 : right->calls + right->calls / 50;
  const long some = kind == kMemory    ? 40
                    : kind == kSockets ? 5
                                       : 20; /* the last wait, and ask again */
  const long tried = all ? points : wanted != NULL ? atol(wanted) : some;
  const long stride = tried >= points ? 1 : points / tried;
  const long runs = (points - 1) / stride + 1;
  int failures = 0;
  if (scenario->waits && kind == kSockets) {
    enum { kAtOnce = 8 };
    pid_t workers[kAtOnce];
    for (int i = 0; i < kAtOnce; ++i) {
      fflush(stdout);
      workers[i] = fork();
      if (workers[i] < 0) abort();
      if (workers[i] > 0) continue;
      char own[16];
      snprintf(own, sizeof own, "%d", i);
      if (mkdir(own, 0700) != 0 || chdir(own) != 0) exit(1);
      report = Shared(sizeof *report);
      exit(TryPoints(scenario, kind, argv[4], mode, 1 + i * stride, kAtOnce * stride, points));
    }
    for (int i = 0; i < kAtOnce; ++i) {
      int status = 0;
      if (waitpid(workers[i], &status, 0) != workers[i]) abort();
      failures += WIFEXITED(status) ? WEXITSTATUS(status) : 1;
    }
  } else {
    failures = TryPoints(scenario, kind, argv[4], mode, 1, stride, points);
  }
  printf("%s %s %s: %ld of %ld points, %d failures\n", scenario->name, argv[4], mode, runs, points,
         failures);
  if (chdir("/") == 0) {
    char command[sizeof shared + 16];
    snprintf(command, sizeof command, "rm -rf %s", directory);
    if (system(command) != 0) return 2;
  }
  return failures == 0 ? 0 : 1;
}
