// lm_each(prompts [, system [, options]]): many prompts, answered together
//   -> key, value, error, finish, tokens_in, tokens_cached, tokens_out
//
//   SELECT key, value FROM lm_each('["Name a colour.", "Name an animal."]');
//
//   -- A whole table, joined back to its rows.
//   WITH batch AS MATERIALIZED (SELECT row_number() OVER () - 1 AS key, id, body FROM notes)
//   SELECT batch.id, answer.value, answer.error
//     FROM lm_each((SELECT json_group_array(body) FROM (SELECT body FROM batch ORDER BY key)),
//                  'Summarise in one sentence.') AS answer JOIN batch USING (key);
//
// All prompts are submitted at once and decode in one batch, which reads the model's weights once
// for all of them: for more than a few rows this is the quick way. `prompts` is a JSON array of
// strings; key is a prompt's index in it. Rows come in that order, each as soon as it and those
// before it are done; a LIMIT cancels the rest.
//
// A null has the value NULL. A prompt that fails has the value NULL and says why in `error`, and
// the others go on; {"on_error":"error"} ends the statement instead, {"on_error":"json"} puts the
// object of lm_try into `value`. An element that is neither a string nor a number nor null is an
// error of the whole call, which names its index. prompts NULL gives no rows.
#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/boundary.h"
#include "extension/host/interrupt.h"
#include "extension/host/sqlite_status.h"
#include "extension/host/sqlite_value.h"
#include "extension/tables/each_batch.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

constexpr char kName[] = "lm_each";

enum Column {
  kKey,
  kAnswer,                                 // the first of its columns
  kPrompts = kAnswer + kNumAnswerColumns,  // hidden: the arguments
  kSystem,
  kOptions,
  kNumColumns
};
constexpr int kNumArguments = kNumColumns - kPrompts;

struct EachTable : sqlite3_vtab {
  std::shared_ptr<Connection> connection;
};

struct EachCursor : sqlite3_vtab_cursor {
  std::unique_ptr<EachBatch> batch;

  Connection& connection() const { return *static_cast<EachTable*>(pVtab)->connection; }
};

EachCursor* Of(sqlite3_vtab_cursor* cursor) { return static_cast<EachCursor*>(cursor); }

template <typename Body>
int Run(sqlite3_vtab* vtab, Body&& body) noexcept {
  return ReportTo(vtab, kName,
                  GuardedInterruptibly(static_cast<EachTable*>(vtab)->connection->db(),
                                       std::forward<Body>(body)));
}

int Connect(sqlite3* db, void* data, int, const char* const*, sqlite3_vtab** out,
            char** message) noexcept {
  return ReportTo(message, kName, Guarded([&]() -> absl::Status {
                    std::string schema =
                        absl::StrCat("CREATE TABLE lm_each(key INTEGER, ", kAnswerColumns,
                                     ", prompts HIDDEN, system HIDDEN, options HIDDEN)");
                    if (sqlite3_declare_vtab(db, schema.c_str()) != SQLITE_OK) {
                      return absl::InternalError(sqlite3_errmsg(db));
                    }
                    sqlite3_vtab_config(db, SQLITE_VTAB_DIRECTONLY);
                    auto table = std::make_unique<EachTable>();
                    table->connection = *static_cast<std::shared_ptr<Connection>*>(data);
                    *out = table.release();
                    return absl::OkStatus();
                  }));
}

int Disconnect(sqlite3_vtab* vtab) noexcept {
  delete static_cast<EachTable*>(vtab);
  return SQLITE_OK;
}

// The arguments arrive as equality constraints on the hidden columns. idxNum has a bit for each
// that is given; xFilter gets their values in the columns' order.
int BestIndex(sqlite3_vtab* vtab, sqlite3_index_info* info) noexcept {
  int constraint_of[kNumArguments] = {-1, -1, -1};
  bool unusable = false;
  for (int i = 0; i < info->nConstraint; ++i) {
    const auto& constraint = info->aConstraint[i];
    if (constraint.iColumn < kPrompts || constraint.op != SQLITE_INDEX_CONSTRAINT_EQ) continue;
    if (constraint.usable) {
      constraint_of[constraint.iColumn - kPrompts] = i;
    } else {
      unusable = true;
    }
  }
  if (unusable) return SQLITE_CONSTRAINT;  // another join order has them
  if (constraint_of[0] < 0) {
    return Run(vtab, [] {
      return absl::InvalidArgumentError("a JSON array of prompts is missing: lm_each(prompts)");
    });
  }
  int num_args = 0;
  for (int argument = 0; argument < kNumArguments; ++argument) {
    int i = constraint_of[argument];
    if (i < 0) continue;
    info->aConstraintUsage[i].argvIndex = ++num_args;
    info->aConstraintUsage[i].omit = 1;
    info->idxNum |= 1 << argument;
  }
  info->estimatedCost = 1e6;
  info->estimatedRows = 100;
  bool by_key = info->nOrderBy == 1 && info->aOrderBy[0].iColumn == kKey && !info->aOrderBy[0].desc;
  info->orderByConsumed = by_key;
  return SQLITE_OK;
}

int Open(sqlite3_vtab*, sqlite3_vtab_cursor** out) noexcept {
  *out = new (std::nothrow) EachCursor();
  return *out != nullptr ? SQLITE_OK : SQLITE_NOMEM;
}

int Close(sqlite3_vtab_cursor* cursor) noexcept {
  delete Of(cursor);
  return SQLITE_OK;
}

// Waits for the row the cursor stands on, and applies on_error 'error'.
absl::Status AwaitCurrent(EachCursor* cursor) {
  if (cursor->batch->Done()) return absl::OkStatus();
  RETURN_IF_ERROR(cursor->batch->AwaitCurrent(cursor->connection().db()));
  const absl::Status& status = cursor->batch->current().generation.status;
  if (cursor->batch->current().null_prompt || status.ok() ||
      cursor->batch->options().on_error != OnError::kError) {
    return absl::OkStatus();
  }
  return absl::Status(status.code(),
                      absl::StrCat("prompts[", cursor->batch->index(), "]: ", status.message()));
}

absl::Status Begin(EachCursor* cursor, int given, sqlite3_value** args) {
  cursor->batch.reset();
  constexpr const char* kArgumentNames[kNumArguments] = {"prompts", "system", "options"};
  std::optional<std::string> argument[kNumArguments];
  for (int i = 0; i < kNumArguments; ++i) {
    if ((given & 1 << i) == 0) continue;
    ASSIGN_OR_RETURN(argument[i], TextOf(*args++, kArgumentNames[i]));
  }
  if (!argument[0].has_value()) return absl::OkStatus();
  ASSIGN_OR_RETURN(CallOptions options, ReadCallOptions(argument[2], cursor->connection(),
                                                        {.on_error = OnError::kNull}));
  ASSIGN_OR_RETURN(cursor->batch,
                   EachBatch::Create(*argument[0], argument[1].value_or(""), std::move(options)));
  return AwaitCurrent(cursor);
}

int Filter(sqlite3_vtab_cursor* cursor, int given, const char*, int,
           sqlite3_value** args) noexcept {
  return Run(cursor->pVtab, [&] { return Begin(Of(cursor), given, args); });
}

int Next(sqlite3_vtab_cursor* cursor) noexcept {
  return Run(cursor->pVtab, [&] {
    Of(cursor)->batch->Next();
    return AwaitCurrent(Of(cursor));
  });
}

int Eof(sqlite3_vtab_cursor* cursor) noexcept {
  return Of(cursor)->batch == nullptr || Of(cursor)->batch->Done();
}

int ReadColumn(sqlite3_vtab_cursor* cursor, sqlite3_context* context, int column) noexcept {
  return Run(cursor->pVtab, [&] {
    const EachBatch& batch = *Of(cursor)->batch;
    if (column == kKey) {
      sqlite3_result_int64(context, batch.index());
    } else {
      ResultAnswerColumn(context, batch.current(), column - kAnswer, batch.options().on_error);
    }
    return absl::OkStatus();
  });
}

int Rowid(sqlite3_vtab_cursor* cursor, sqlite3_int64* rowid) noexcept {
  *rowid = Of(cursor)->batch->index();
  return SQLITE_OK;
}

constexpr sqlite3_module Module() {
  sqlite3_module module = {};
  module.xConnect = Connect;
  module.xDisconnect = Disconnect;
  module.xBestIndex = BestIndex;
  module.xOpen = Open;
  module.xClose = Close;
  module.xFilter = Filter;
  module.xNext = Next;
  module.xEof = Eof;
  module.xColumn = ReadColumn;
  module.xRowid = Rowid;
  return module;
}

}  // namespace

int RegisterEach(const std::shared_ptr<Connection>& connection) {
  static constexpr sqlite3_module kModule = Module();
  auto* data = new (std::nothrow) std::shared_ptr<Connection>(connection);
  if (data == nullptr) return SQLITE_NOMEM;
  return sqlite3_create_module_v2(connection->db(), kName, &kModule, data, [](void* p) {
    delete static_cast<std::shared_ptr<Connection>*>(p);
  });
}

}  // namespace lm
