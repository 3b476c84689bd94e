#include "extension/batch/read_order.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/batch/harmless_tables.h"
#include "extension/host/sql_tokens.h"
#include "extension/host/statement.h"

namespace lm {
namespace {

// What the schemas say of a name.
struct NameInSchemas {
  bool view = false;
  bool triggers = false;
  std::set<std::string> indexes;  // in lower case
};

absl::StatusOr<NameInSchemas> Find(sqlite3* db, absl::string_view asker, absl::string_view target) {
  NameInSchemas found;
  ASSIGN_OR_RETURN(const std::vector<std::string> schemas, SchemasOf(db, asker));
  for (const std::string& schema : schemas) {
    ASSIGN_OR_RETURN(
        Statement objects,
        Statement::Prepare(
            db, SelectBy(asker, absl::StrCat("SELECT type, name FROM ", QuotedName(schema),
                                             ".sqlite_master WHERE tbl_name = ? COLLATE NOCASE"))));
    objects.Bind(1, target);
    for (;;) {
      ASSIGN_OR_RETURN(const bool row, objects.Step());
      if (!row) break;
      ASSIGN_OR_RETURN(const std::string type, objects.Text(0));
      ASSIGN_OR_RETURN(const std::string name, objects.Text(1));
      found.view = found.view || type == "view";
      found.triggers = found.triggers || type == "trigger";
      if (type == "index") found.indexes.insert(absl::AsciiStrToLower(name));
    }
  }
  return found;
}

// The index that a table WITHOUT ROWID is: those of its constraints are numbered, and this one is
// in no schema.
std::string PrimaryIndex(absl::string_view table, const NameInSchemas& schemas) {
  for (size_t number = 1;; ++number) {
    std::string name = absl::StrCat("sqlite_autoindex_", table, "_", number);
    if (!schemas.indexes.contains(absl::AsciiStrToLower(name))) return name;
  }
}

std::string IndexedBy(absl::string_view name) {
  return absl::StrCat("INDEXED BY ", QuotedName(name));
}

// What EXPLAIN QUERY PLAN says of the table that is written, its first line: "SCAN t", "SEARCH t
// USING INTEGER PRIMARY KEY (rowid=?)" or "SEARCH t USING COVERING INDEX name (a=? AND b>?)".
absl::StatusOr<std::string> IndexOf(Statement& plan) {
  constexpr int kParent = 1, kDetail = 3;
  constexpr absl::string_view kIndex = " INDEX ";
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, plan.Step());
    if (!row) return "";
    if (plan.Integer(kParent) != 0) continue;
    ASSIGN_OR_RETURN(const std::string text, plan.Text(kDetail));
    const absl::string_view detail = text;
    if (absl::StrContains(detail, "VIRTUAL TABLE") || absl::StrContains(detail, "MULTI-INDEX")) {
      return "";
    }
    if (!absl::StartsWith(detail, "SCAN ") && !absl::StartsWith(detail, "SEARCH ")) continue;
    const size_t using_index = detail.find(" USING ");
    if (using_index == absl::string_view::npos) return "NOT INDEXED";
    const size_t name = detail.find(kIndex, using_index);
    if (name == absl::string_view::npos) return "NOT INDEXED";  // by its primary key
    const size_t begin = name + kIndex.size();
    const size_t end = std::min(detail.rfind(" ("), detail.size());
    return IndexedBy(detail.substr(begin, end > begin ? end - begin : end));
  }
}

enum class Kept { kNothing, kRowids, kKeys };

// What a program first keeps of its rows in a table of its own, by which it finds them then:
//   Rowid      P1: that table  P2: a register     or: RowData
//   NotExists  P1: the table of the rows  P3: the same register     or: NotFound
absl::StatusOr<Kept> KeptBy(Statement& program) {
  constexpr int kOpcode = 1, kP1 = 2, kP2 = 3, kP3 = 4;
  std::set<int64_t> own_tables;
  int64_t read = -1;  // the register with what the instruction before has read of such a table
  for (;;) {
    ASSIGN_OR_RETURN(const bool row, program.Step());
    if (!row) return Kept::kNothing;
    ASSIGN_OR_RETURN(const std::string opcode, program.Text(kOpcode));
    if (read >= 0 && program.Integer(kP3) == read) {
      if (opcode == "NotExists") return Kept::kRowids;
      if (opcode == "NotFound") return Kept::kKeys;
    }
    if (opcode == "OpenEphemeral") own_tables.insert(program.Integer(kP1));
    const bool reads =
        (opcode == "Rowid" || opcode == "RowData") && own_tables.contains(program.Integer(kP1));
    read = reads ? program.Integer(kP2) : -1;
  }
}

}  // namespace

absl::StatusOr<ReadOrder> ReadOrderOf(sqlite3* db, absl::string_view asker, absl::string_view sql,
                                      absl::string_view target) {
  ReadOrder order;
  // EXPLAIN of a statement that writes sets changes() to 0, also within the statement that runs: it
  // is left alone where that one may look at it.
  const std::vector<SqlToken> tokens = SqlTokens(sql);
  const bool counts = std::any_of(tokens.begin(), tokens.end(),
                                  [](const SqlToken& token) { return token.Names("changes"); });
  ASSIGN_OR_RETURN(const NameInSchemas schemas, Find(db, asker, target));
  if (schemas.view) return order;
  if (schemas.triggers || counts) {
    order.by_rowid = schemas.triggers;  // as every UPDATE that has triggers
    return order;
  }
  ASSIGN_OR_RETURN(Statement plan, Statement::Prepare(db, absl::StrCat(MarkOf(asker), kExplain,
                                                                       "QUERY PLAN ", sql)));
  ASSIGN_OR_RETURN(order.index, IndexOf(plan));
  ASSIGN_OR_RETURN(Statement program,
                   Statement::Prepare(db, absl::StrCat(MarkOf(asker), kExplain, sql)));
  ASSIGN_OR_RETURN(const Kept kept, KeptBy(program));
  order.by_rowid = kept == Kept::kRowids;
  if (kept == Kept::kKeys) order.index = IndexedBy(PrimaryIndex(target, schemas));
  return order;
}

}  // namespace lm
