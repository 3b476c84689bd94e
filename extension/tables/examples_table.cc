// temp.lm_examples(name, prompt, answer): questions with the answers that one would like to have
//
//   INSERT INTO temp.lm_examples SELECT 'mood', body, label FROM reviewed LIMIT 8;
//   UPDATE reviews SET label = lm_classify(body, '["praise","complaint"]', NULL,
//                                          '{"examples":"mood"}');
//   SELECT generate(body, 'Name it.', '{"examples":[{"prompt":"A red fruit.","answer":"cherry"}]}')
//     FROM riddles;
//
// The model reads them between the system prompt and each prompt, as if it had been asked and had
// answered so: a message of the user's and one of its own each, in the order in which they were
// inserted, which is that of rowid (it cannot be written). For all rows they are the same, and so
// are computed once, with the system prompt. A function that puts a question behind its text
// (lm_if, lm_score, ...) puts it behind those of the examples, too; an answer is what the
// function's answer is as a text: a label, yes or no, a JSON text.
//
// A set belongs to the connection, as lm_models does, and changes with transactions; its rows may
// come from any table. What is given in the options themselves, as an array, needs no set: so for
// the options of a job that other programs go on with. A set that is not there is an error. Without
// meaning for lm_embed and its like, which answer nothing; not together with `messages`.
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/binding/snapshot_table.h"
#include "extension/tables/tables.h"

namespace lm {
namespace {

class ExamplesTable : public WritableTable {
 public:
  static constexpr int kNumColumns = 3;

  using WritableTable::WritableTable;

  const char* name() const override { return "lm_examples"; }
  std::string Schema() const override {
    return "CREATE TABLE lm_examples(name TEXT, prompt TEXT, answer TEXT)";
  }
  int num_writable() const override { return kNumColumns; }

  absl::StatusOr<std::vector<SnapshotRow>> Rows() override {
    std::vector<SnapshotRow> rows;
    for (const auto& [rowid, row] : connection().examples().rows()) {
      rows.push_back({rowid, {row.name, row.example.prompt, row.example.answer}});
    }
    return rows;
  }

  absl::StatusOr<int64_t> Insert(absl::Span<const Cell> cells, OnConflict) override {
    const int64_t rowid = connection().examples().NextRowid();
    RETURN_IF_ERROR(Put(rowid, cells));
    return rowid;
  }

  absl::Status Update(int64_t rowid, absl::Span<const Cell> cells, OnConflict) override {
    return Put(rowid, cells);
  }

  absl::Status Delete(int64_t rowid) override {
    connection().examples().Remove(rowid);
    return absl::OkStatus();
  }

  std::shared_ptr<const void> Save() const override { return connection().examples().Save(); }
  void Restore(const void* saved) override {
    connection().examples().Restore(*static_cast<const ExampleSets::Saved*>(saved));
  }

 private:
  absl::Status Put(int64_t rowid, absl::Span<const Cell> cells) {
    constexpr const char* kNames[kNumColumns] = {"name", "prompt", "answer"};
    std::string texts[kNumColumns];
    for (int i = 0; i < kNumColumns; ++i) {
      if (const auto* text = std::get_if<std::string>(&cells[i])) {
        texts[i] = *text;
      } else if (const auto* integer = std::get_if<int64_t>(&cells[i])) {
        texts[i] = absl::StrCat(*integer);
      } else if (const auto* real = std::get_if<double>(&cells[i])) {
        char digits[32];
        texts[i] = sqlite3_snprintf(sizeof digits, digits, "%!.15g", *real);  // as SQLite writes it
      } else {
        return absl::InvalidArgumentError(absl::StrCat(kNames[i], " must be a text, got NULL"));
      }
      if (i == 0 && texts[i].empty()) {
        return absl::InvalidArgumentError("name must be a text that is not empty, got ''");
      }
    }
    connection().examples().Put(
        {rowid, std::move(texts[0]), {std::move(texts[1]), std::move(texts[2])}});
    return absl::OkStatus();
  }
};

}  // namespace

int RegisterExamples(const std::shared_ptr<Connection>& connection) {
  return RegisterWritableTable(connection, "lm_examples", &MakeTable<ExamplesTable>);
}

}  // namespace lm
