// lm_static: SQLite is part of the same program. The table of routines that a loaded extension is
// handed is SQLite's own affair, so this fills in one like it.
#define SQLITE_CORE 1  // here alone, sqlite3_step is the function and not the table's entry
#include "extension/host/host.h"

extern "C" {
// Absent from SQLite before 3.34 and 3.41; a weak reference is then null.
__attribute__((weak)) int sqlite3_txn_state(sqlite3*, const char*);
__attribute__((weak)) int sqlite3_is_interrupted(sqlite3*);
// Absent where SQLITE_OMIT_PROGRESS_CALLBACK is.
__attribute__((weak)) void sqlite3_progress_handler(sqlite3*, int, int (*)(void*), void*);
}

const sqlite3_api_routines* sqlite3_api = nullptr;

namespace lm {
namespace {

// What the extension calls; tests/floors_test.py holds it to this list.
sqlite3_api_routines Routines() {
  sqlite3_api_routines routines = {};
#define SET(name) routines.name = sqlite3_##name
  // clang-format off
  SET(aggregate_context); SET(bind_blob64); SET(bind_double); SET(bind_int64); SET(bind_null);
  SET(bind_parameter_count); SET(bind_parameter_index); SET(bind_parameter_name); SET(bind_text64);
  SET(bind_value); SET(busy_handler); SET(busy_timeout); SET(changes); SET(close); SET(close_v2);
  SET(column_blob); SET(column_bytes); SET(column_count); SET(column_int64); SET(column_text);
  SET(column_type); SET(column_value); SET(create_function_v2); SET(create_module_v2);
  SET(create_window_function); SET(db_config); SET(db_filename); SET(db_handle); SET(db_mutex);
  SET(db_readonly); SET(db_status);
  SET(declare_vtab); SET(errcode); SET(errmsg); SET(errstr); SET(exec); SET(expanded_sql);
  SET(extended_errcode); SET(file_control); SET(finalize); SET(free); SET(get_autocommit);
  SET(get_auxdata); SET(last_insert_rowid); SET(libversion); SET(libversion_number); SET(limit);
  SET(log); SET(mprintf); SET(mutex_leave); SET(mutex_try); SET(next_stmt); SET(open_v2);
  SET(prepare_v3); SET(reset);
  SET(result_blob64); SET(result_double); SET(result_error); SET(result_error_code);
  SET(result_error_nomem); SET(result_int); SET(result_int64); SET(result_null);
  SET(result_subtype); SET(result_text64); SET(result_value); SET(set_authorizer); SET(set_auxdata);
  SET(sql); SET(step); SET(stmt_busy); SET(stmt_readonly); SET(stmt_status);
  SET(table_column_metadata); SET(total_changes); SET(user_data); SET(value_blob); SET(value_bytes);
  SET(value_double); SET(value_dup); SET(value_free); SET(value_int64); SET(value_nochange);
  SET(value_text); SET(value_type);
  SET(vtab_collation); SET(vtab_config); SET(vtab_nochange); SET(vtab_on_conflict); SET(txn_state);
  // clang-format on
#undef SET
  routines.interruptx = sqlite3_interrupt;
  routines.xsnprintf = sqlite3_snprintf;
  return routines;
}

}  // namespace

bool AdoptHost(const sqlite3_api_routines*, char**) {
  static const sqlite3_api_routines routines = Routines();
  static const bool adopted = [] {
    sqlite3_api = &routines;
    return true;
  }();
  return adopted;
}

int InitResult() { return SQLITE_OK; }

IsInterruptedFunction FindIsInterrupted() { return sqlite3_is_interrupted; }

ProgressHandlerFunction FindProgressHandler() { return sqlite3_progress_handler; }

}  // namespace lm
