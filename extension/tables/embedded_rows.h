// The rows of a SELECT id, text, with the embeddings of their texts, which are made together.
#ifndef LM_EXTENSION_TABLES_EMBEDDED_ROWS_H_
#define LM_EXTENSION_TABLES_EMBEDDED_ROWS_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/sqlite_value.h"
#include "extension/questions/embedder.h"

namespace lm {

struct EmbeddedRow {
  OwnedValue id;
  std::optional<std::string> text;  // nullopt: NULL, or one that failed
  std::vector<float> vector = {};   // empty where there is no text
  double squared_length = 0;        // of the vector
};

// InvalidArgument, naming both and their lengths, where they cannot be compared.
absl::Status CheckAlikeLong(const EmbeddedRow& a, absl::string_view a_name, const EmbeddedRow& b,
                            absl::string_view b_name);

// REQUIRES: they are as long.
inline double Cosine(const EmbeddedRow& a, const EmbeddedRow& b) {
  return Cosine(a.vector, a.squared_length, b.vector, b.squared_length);
}

// In the SELECT's order. An error names the argument and the row: of a text that fails, where the
// embedder's on_error is 'error'; else it has none. All vectors are as long: another is an error,
// whatever on_error says.
absl::StatusOr<std::vector<EmbeddedRow>> EmbedRows(sqlite3* db, const std::string& sql,
                                                   absl::string_view name,
                                                   const Embedder& embedder);

// The same without embeddings.
absl::StatusOr<std::vector<EmbeddedRow>> TextRows(sqlite3* db, const std::string& sql,
                                                  absl::string_view name, OnError on_error);

}  // namespace lm

#endif  // LM_EXTENSION_TABLES_EMBEDDED_ROWS_H_
