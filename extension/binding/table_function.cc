#include "extension/binding/table_function.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/boundary.h"
#include "extension/host/sqlite_status.h"
#include "extension/host/sqlite_value.h"

namespace lm {

absl::StatusOr<std::optional<std::string>> TableArguments::Text(int i) const {
  if (values_[i] == nullptr) return std::nullopt;
  return TextOf(values_[i], spec_.arguments[i]);
}

absl::StatusOr<std::optional<int64_t>> TableArguments::Integer(int i) const {
  const int type = values_[i] != nullptr ? sqlite3_value_type(values_[i]) : SQLITE_NULL;
  if (type == SQLITE_NULL) return std::nullopt;
  if (type != SQLITE_BLOB) {
    ASSIGN_OR_RETURN(const std::optional<std::string> text, Text(i));
    int64_t value;
    if (absl::SimpleAtoi(text.value_or(""), &value)) return value;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(spec_.arguments[i], " must be a whole number, got ", ShownValue(values_[i])));
}

namespace {

// nullopt for what = compares as no number, whatever affinity the other side has.
std::optional<double> AsNumber(sqlite3_value* value) {
  const int type = sqlite3_value_type(value);
  if (type == SQLITE_INTEGER || type == SQLITE_FLOAT) return sqlite3_value_double(value);
  if (type != SQLITE_TEXT) return std::nullopt;  // asked for its text, a BLOB would become one
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(value));
  double number;
  const bool is_number = text != nullptr && absl::SimpleAtod(text, &number);
  return is_number ? std::optional(number) : std::nullopt;
}

// Whether SQL's = cannot hold between the two under the collation BINARY.
bool Differ(sqlite3_value* left, sqlite3_value* right) {
  const int type = sqlite3_value_type(left), other = sqlite3_value_type(right);
  if (type == SQLITE_NULL || other == SQLITE_NULL) return true;
  if (type == other && (type == SQLITE_TEXT || type == SQLITE_BLOB)) return !SameValue(left, right);
  const std::optional<double> number = AsNumber(left);
  return !number.has_value() || number != AsNumber(right);
}

}  // namespace

absl::Status TableCursor::Begin(int plan, const char* conditions, sqlite3_value** args) {
  std::array<sqlite3_value*, kMostTableArguments> values = {};
  bool same = plan == plan_ && can_rewind();
  for (int i = 0; i < kMostTableArguments; ++i) {
    if ((plan & 1 << i) == 0) continue;
    values[i] = *args++;
    same = same && SameValue(values[i], arguments_[i].get());
  }
  // Before anything is asked of a model.
  contradicted_ = false;
  for (; *conditions != '\0'; ++conditions) {
    contradicted_ = contradicted_ || Differ(values[*conditions - '0'], *args++);
  }
  if (contradicted_) return absl::OkStatus();
  if (same) {
    Rewind();
    return absl::OkStatus();
  }
  plan_ = -1;  // what fails half-way is no scan to go back to
  for (int i = 0; i < kMostTableArguments; ++i) {
    arguments_[i].reset(values[i] != nullptr ? sqlite3_value_dup(values[i]) : nullptr);
    if (values[i] != nullptr && arguments_[i] == nullptr) {
      return absl::ResourceExhaustedError("out of memory");
    }
  }
  RETURN_IF_ERROR(Filter(TableArguments(spec_, values, plan >> kMostTableArguments)));
  plan_ = plan;
  return absl::OkStatus();
}

absl::Status TableCursor::Column(int column, sqlite3_context* context) {
  if (column < spec_.num_columns) return Value(column, context);
  const OwnedValue& argument = arguments_[column - spec_.num_columns];
  if (argument != nullptr) sqlite3_result_value(context, argument.get());
  return absl::OkStatus();
}

namespace {

int NumArguments(const TableFunctionSpec& spec) {
  int count = 0;
  while (count < kMostTableArguments && spec.arguments[count] != nullptr) ++count;
  return count;
}

}  // namespace

std::string FunctionTable::Schema() const {
  std::string schema = absl::StrCat("CREATE TABLE t(", spec_.columns);
  for (int i = 0; i < NumArguments(spec_); ++i) {
    absl::StrAppend(&schema, ", ", spec_.arguments[i], " HIDDEN");
  }
  return schema + ")";
}

// A name that is an argument's own means that argument, wherever the statement says it.
absl::Status FunctionTable::MissingError(const sqlite3_index_info& info, int argument) const {
  constexpr int kOthers = 63;  // the bit of this column and all behind it
  const int column = std::min(spec_.num_columns + argument, kOthers);
  const bool is_named = (info.colUsed >> column & 1) != 0;
  const absl::string_view name = spec_.arguments[argument];
  return absl::InvalidArgumentError(absl::StrCat(
      spec_.missing,
      is_named ? absl::StrCat(" (", name, " here is the function's own argument; write t.", name,
                              " for a table's column of that name; on the right of a RIGHT JOIN"
                              " SQLite may hand it no arguments: put it into a MATERIALIZED CTE)")
               : ""));
}

// The arguments arrive as equality constraints on the hidden columns, and so do conditions on these
// columns, in no order that would tell which is which. Of several on one column, the first is taken
// as the argument; the others' values are handed over behind the arguments, for a scan has rows
// only where all are equal, whichever is the argument. A condition of another collation than BINARY
// may call different texts equal: it is the argument where there is no other, and else SQLite's
// alone to check.
//
// idxNum has a bit for each argument that is given, whose values come in the columns' order, and
// behind them one for each of the first columns that is used; idxStr is the others' arguments.
absl::StatusOr<bool> FunctionTable::BestIndex(sqlite3_index_info* info) {
  std::array<int, kMostTableArguments> constraint_of;
  constraint_of.fill(-1);
  std::array<bool, kMostTableArguments> comes_later = {}, is_binary = {};
  std::vector<int> others;
  auto argument_of = [&](int i) { return info->aConstraint[i].iColumn - spec_.num_columns; };
  for (int i = 0; i < info->nConstraint; ++i) {
    const int argument = argument_of(i);
    if (argument < 0 || info->aConstraint[i].op != SQLITE_INDEX_CONSTRAINT_EQ) continue;
    if (!info->aConstraint[i].usable) {
      comes_later[argument] = true;
      continue;
    }
    const bool binary = absl::EqualsIgnoreCase(sqlite3_vtab_collation(info, i), "BINARY");
    if (constraint_of[argument] < 0 || (binary && !is_binary[argument])) {
      constraint_of[argument] = i;
      is_binary[argument] = binary;
    } else if (binary) {
      others.push_back(i);
    }
  }
  int num_given = 0;
  for (int argument = 0; argument < NumArguments(spec_); ++argument) {
    const int i = constraint_of[argument];
    if (i < 0 && comes_later[argument]) return false;  // another join order has it
    if (i < 0 && argument < spec_.required) return MissingError(*info, argument);
    if (i < 0) continue;
    info->aConstraintUsage[i].argvIndex = ++num_given;
    info->aConstraintUsage[i].omit = 1;
    info->idxNum |= 1 << argument;
  }
  std::string conditions;
  for (const int i : others) {
    info->aConstraintUsage[i].argvIndex = ++num_given;
    absl::StrAppend(&conditions, argument_of(i));
  }
  info->idxStr = sqlite3_mprintf("%s", conditions.c_str());
  info->needToFreeIdxStr = 1;
  if (info->idxStr == nullptr) return absl::ResourceExhaustedError("out of memory");
  constexpr uint64_t kTold = (1 << TableArguments::kToldColumns) - 1;
  info->idxNum |= static_cast<int>(info->colUsed & kTold) << kMostTableArguments;
  info->estimatedCost = 1e6;
  info->estimatedRows = spec_.estimated_rows;
  info->orderByConsumed = info->nOrderBy == 1 && !info->aOrderBy[0].desc &&
                          info->aOrderBy[0].iColumn == spec_.ascending;
  return true;
}

namespace {

// "lm_each(prompts [, system [, options]])".
std::string Signature(const TableFunctionSpec& spec) {
  std::string signature = absl::StrCat(spec.name, "(");
  const int count = NumArguments(spec);
  for (int i = 0; i < count; ++i) {
    const char* before = i < spec.required ? "" : i > 0 ? " [" : "[";
    absl::StrAppend(&signature, before, i > 0 ? ", " : "", spec.arguments[i]);
  }
  return absl::StrCat(signature, std::string(std::max(count - spec.required, 0), ']'), ")");
}

// A scalar function of the table's name, for SQL that calls the table as one: SQLite would say that
// there is no such function.
int RegisterExplanation(sqlite3* db, const TableFunctionSpec* spec) {
  const auto explain = [](sqlite3_context* context, int, sqlite3_value**) noexcept {
    const auto& spec = *static_cast<const TableFunctionSpec*>(sqlite3_user_data(context));
    const absl::Status status = Guarded([&] {
      return absl::InvalidArgumentError(
          absl::StrCat("it is a table: SELECT * FROM ", Signature(spec)));
    });
    ResultError(context, spec.name, status);
  };
  return sqlite3_create_function_v2(db, spec->name, -1, SQLITE_UTF8 | SQLITE_DIRECTONLY,
                                    const_cast<TableFunctionSpec*>(spec), explain, nullptr, nullptr,
                                    nullptr);
}

int Register(const std::shared_ptr<Connection>& connection, const TableFunctionSpec* spec,
             const sqlite3_module* module) {
  const int code = RegisterExplanation(connection->db(), spec);
  if (code != SQLITE_OK) return code;
  return RegisterVirtualTable(connection->db(), spec->name, module,
                              [connection, spec](absl::Span<const char* const>) {
                                return std::make_unique<FunctionTable>(connection, *spec);
                              });
}

}  // namespace

int RegisterTableFunction(const std::shared_ptr<Connection>& connection,
                          const TableFunctionSpec* spec) {
  static const sqlite3_module module = VirtualTableModule(Creation::kByNameAlone);
  return Register(connection, spec, &module);
}

int RegisterTemporaryTableFunction(const std::shared_ptr<Connection>& connection,
                                   const TableFunctionSpec* spec) {
  static const sqlite3_module module = VirtualTableModule(Creation::kAlsoByCreate);
  return Register(connection, spec, &module);
}

}  // namespace lm
