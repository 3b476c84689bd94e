// lm_extract_each('schema' [, 'options']): what texts say, in columns of their own
//   -> a table, of which each property of the schema is a column
//
//   CREATE VIRTUAL TABLE temp.reviews USING lm_extract_each(
//     '{"type":"object","properties":{"product":{"type":"string"},"stars":{"type":"integer"}}}');
//   SELECT mail.id, product, stars FROM mail, reviews(mail.body);
//   SELECT product, avg(stars) FROM mail, reviews(mail.body) GROUP BY product;
//
// The columns of a table are known when it is made, so the schema says them once; then the table is
// a function of a text. It takes what lm_extract takes as a schema, and asks the same. A property
// of type integer, number, boolean or string is a column of that type (a boolean is 0 or 1), any
// other holds JSON; what the text does not tell is NULL. Where the schema is an array of objects,
// each of these is a row:
//
//   CREATE VIRTUAL TABLE temp.people USING lm_extract_each(
//     '{"type":"array","items":{"type":"object","properties":{"name":{"type":"string"}}}}');
//   SELECT letter.id, people.name FROM letter, people(letter.body);
//
// Texts of a join are asked about together, as look-ahead sees them coming
// (extension/batch/look_ahead.h); those of a correlated subquery one after the other.
//
// The options are lm_extract's, and the second argument. A NULL text gives no rows. A text that
// fails ends the statement; with another on_error it has no rows.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "engine/base/json.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"
#include "engine/grammar/schema/schema_document.h"
#include "extension/batch/await_row.h"
#include "extension/connection/own_options.h"
#include "extension/host/sqlite_value.h"
#include "extension/questions/constrained_options.h"
#include "extension/questions/extraction.h"
#include "extension/tables/rows_cursor.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

constexpr char kName[] = "lm_extract_each";
constexpr int kFirstArgument = 3;  // behind the module, the database and the table
constexpr int kMostReferences = 100;  // one behind the other

// What one CREATE VIRTUAL TABLE has said.
struct Extraction {
  std::string schema;
  std::optional<std::string> options;
  std::vector<std::string> names;  // of the properties, and so of the columns
  std::vector<bool> real;          // which of the columns are REAL
  std::string columns;             // as in CREATE TABLE
  std::string text = "text";       // the hidden column
};

// A string literal of SQL, '...' or "...".
absl::StatusOr<std::string> LiteralOf(absl::string_view argument, absl::string_view what) {
  argument = absl::StripAsciiWhitespace(argument);
  const absl::string_view quote = argument.substr(0, 1);
  if (argument.size() >= 2 && (quote == "'" || quote == "\"") && absl::EndsWith(argument, quote)) {
    return absl::StrReplaceAll(argument.substr(1, argument.size() - 2),
                               {{absl::StrCat(quote, quote), quote}});
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " must be a text in quotes, got ", Printable(argument.substr(0, 64))));
}

constexpr absl::string_view kReal = " REAL";

absl::string_view TypeOf(const Json& property) {
  constexpr std::pair<absl::string_view, absl::string_view> kTypes[] = {
      {"string", " TEXT"}, {"integer", " INTEGER"}, {"number", kReal}, {"boolean", " INTEGER"}};
  const Json* type = property.Find("type");
  for (const auto& [json, sql] : kTypes) {
    if (type != nullptr && type->is_string() && type->string() == json) return sql;
  }
  return "";
}

// The schema that stands for this one, where all that it says is a $ref.
absl::StatusOr<const Json*> Referred(const SchemaDocument& document, const Json* schema) {
  for (int turns = 0; turns < kMostReferences; ++turns) {
    const Json* ref = schema->Find("$ref");
    const bool says_more = schema->Has("properties") || schema->Has("items");
    if (ref == nullptr || !ref->is_string() || says_more) break;
    ASSIGN_OR_RETURN(schema, document.Resolve(*schema, ref->string()));
  }
  return schema;
}

absl::Status ReadColumns(Extraction* extraction) {
  ASSIGN_OR_RETURN(const std::unique_ptr<SchemaDocument> document,
                   SchemaDocument::Parse(extraction->schema));
  ASSIGN_OR_RETURN(const Json* object, Referred(*document, &document->root()));
  if (const Json* items = object->Find("items"); items != nullptr) {
    ASSIGN_OR_RETURN(object, Referred(*document, items));
  }
  const Json* properties = object->Find("properties");
  if (properties == nullptr || !properties->is_object() || properties->size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("schema must be of an object, or of an array of objects, with properties, "
                     "which are the columns; got ",
                     Printable(extraction->schema.substr(0, 64))));
  }
  for (const auto& [name, property] : properties->members()) {
    RETURN_IF_ERROR(CheckText(name, absl::StrCat("the property '", Printable(name), "'")));
    absl::StrAppend(&extraction->columns, extraction->names.empty() ? "" : ", ", "\"",
                    absl::StrReplaceAll(name, {{"\"", "\"\""}}), "\"", TypeOf(property));
    extraction->names.push_back(name);
    extraction->real.push_back(TypeOf(property) == kReal);
  }
  auto taken = [extraction](const std::string& name) {
    return absl::EqualsIgnoreCase(name, extraction->text);
  };
  while (std::any_of(extraction->names.begin(), extraction->names.end(), taken)) {
    extraction->text.push_back('_');
  }
  return absl::OkStatus();
}

absl::StatusOr<Extraction> ReadExtraction(absl::Span<const char* const> args) {
  const size_t given = args.size() - kFirstArgument;
  if (given < 1 || given > 2) {
    return absl::InvalidArgumentError(absl::StrCat(
        "its columns are those of a schema: CREATE VIRTUAL TABLE temp.people USING ", kName,
        R"(('{"properties":{"name":{"type":"string"}}}' [, 'options']), then SELECT * FROM )",
        "temp.people(text)"));
  }
  Extraction extraction;
  ASSIGN_OR_RETURN(const std::string schema, LiteralOf(args[kFirstArgument], "schema"));
  ASSIGN_OR_RETURN(extraction.schema, ExtractionSchema(schema));
  if (given == 2) {
    ASSIGN_OR_RETURN(extraction.options, LiteralOf(args[kFirstArgument + 1], "options"));
    RETURN_IF_ERROR(CheckCallOptions(*extraction.options));
  }
  RETURN_IF_ERROR(ReadColumns(&extraction));
  return extraction;
}

// `real`: a column of floating-point numbers, whole ones too, as in a table of SQLite's own.
Cell CellOf(const Json* value, bool real) {
  if (value == nullptr || value->is_null()) return Cell();
  if (real && value->is_number()) return value->number();
  if (value->is_boolean()) return int64_t{value->boolean()};
  if (value->is_integer() && !(value->is_unsigned() && value->unsigned_integer() > INT64_MAX)) {
    return value->integer();
  }
  if (value->is_number()) return value->number();
  if (value->is_string()) return value->string();
  return JsonText{value->Dump()};
}

class ExtractCursor : public RowsCursor {
 public:
  ExtractCursor(Connection& connection, const TableFunctionSpec& spec, const Extraction& extraction)
      : RowsCursor(connection, spec),
        extraction_(extraction),
        ahead_(connection, spec.name, &extraction) {}

  absl::Status Fill(const TableArguments& args, Rows* rows) override {
    RowPrompt row{.prompt = args.Text(0),
                  .system = ExtractionPrompt(extraction_.schema),
                  .asked = ExtractionWords(extraction_.schema)};
    if (row.prompt.ok() && !row.prompt->has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(CallOptions options, ReadCallOptions(extraction_.options, connection(),
                                                          {.on_length = OnLength::kComplete}));
    const OnError on_error = options.generation.on_error;
    ASSIGN_OR_RETURN(
        row.options,
        Constrained(std::move(options), {AnswerConstraint::Kind::kExtraction, extraction_.schema}));
    ASSIGN_OR_RETURN(const std::optional<PendingAnswer> pending, ahead_.Await(std::move(row)));
    if (!pending.has_value()) return absl::OkStatus();  // a shadow's
    const Generation& answer = pending->answer().generation;
    if (!answer.status.ok()) return on_error == OnError::kError ? answer.status : absl::OkStatus();
    const std::optional<Json> said = Json::Parse(answer.text);
    if (!said.has_value()) return absl::InternalError("the answer is no JSON");
    if (said->is_object()) AddRow(*said, rows);
    if (!said->is_array()) return absl::OkStatus();
    for (const Json& element : said->array()) AddRow(element, rows);
    return absl::OkStatus();
  }

 private:
  void AddRow(const Json& object, Rows* rows) const {
    std::vector<Cell> row;
    for (size_t i = 0; i < extraction_.names.size(); ++i) {
      row.push_back(CellOf(object.Find(extraction_.names[i]), extraction_.real[i]));
    }
    rows->push_back(std::move(row));
  }

  const Extraction& extraction_;
  CursorAhead ahead_;
};

class ExtractTable : public FunctionTable {
 public:
  ExtractTable(std::shared_ptr<Connection> connection, Extraction extraction)
      : FunctionTable(std::move(connection), own_spec_), extraction_(std::move(extraction)) {
    own_spec_.name = kName;
    own_spec_.columns = extraction_.columns.c_str();
    own_spec_.num_columns = static_cast<int>(extraction_.names.size());
    own_spec_.arguments = {extraction_.text.c_str()};
    own_spec_.missing = "a text is missing: the table is a function of it, as in FROM people(text)";
  }

  std::unique_ptr<VirtualCursor> Open() override {
    return std::make_unique<ExtractCursor>(connection(), own_spec_, extraction_);
  }

 private:
  TableFunctionSpec own_spec_ = {};
  const Extraction extraction_;
};

}  // namespace

int RegisterExtractEach(const std::shared_ptr<Connection>& connection) {
  static const sqlite3_module module = VirtualTableModule(Creation::kAlsoByCreate);
  return RegisterVirtualTable(
      connection->db(), kName, &module,
      [connection](
          absl::Span<const char* const> args) -> absl::StatusOr<std::unique_ptr<VirtualTable>> {
        ASSIGN_OR_RETURN(Extraction extraction, ReadExtraction(args));
        return std::make_unique<ExtractTable>(connection, std::move(extraction));
      });
}

}  // namespace lm
