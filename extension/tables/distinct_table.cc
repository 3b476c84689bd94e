// lm_distinct(select_sql [, options]): which rows say what an earlier one has said
//   -> id, text, same_as, similarity
//
//   SELECT id, text FROM lm_distinct('SELECT id, body FROM notes') WHERE same_as = id;
//   SELECT same_as, count(*), group_concat(id) FROM lm_distinct('SELECT id, body FROM notes')
//     GROUP BY same_as;
//
// The SELECT has the columns id (any value, handed through) and text. Rows come in its order. The
// first row stands for itself: same_as is its own id. So does each further one whose text is less
// like that of all rows that stand for themselves than `threshold`; any other has the id of the one
// it is most like (of several as alike, the first), and how alike they are. So the groups depend on
// the order of the rows, and on nothing else: begin with what is to be kept.
//
// Texts are alike by the cosine of their embeddings (lm_similarity), and no row is compared with
// more than those that stand for themselves. Options: `threshold` (0.9; what a good one is, depends
// on the model), those of lm_embed (`model`, `pooling`, `task`, `dimensions`), `on_error`,
// `on_overflow`. A NULL, and a text that fails where on_error is not 'error', is like none: same_as
// is NULL.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "engine/base/status_macros.h"
#include "extension/binding/table_function.h"
#include "extension/connection/own_options.h"
#include "extension/tables/embedded_rows.h"
#include "extension/tables/kept_scan.h"
#include "extension/tables/tables.h"
#include "extension/tables/vector_panels.h"

namespace lm {
namespace {

class DistinctCursor : public TableCursor {
 public:
  enum Column { kId, kText, kSameAs, kSimilarity };

  using TableCursor::TableCursor;

  absl::Status Filter(const TableArguments& args) override {
    rows_.clear();
    groups_.clear();
    index_ = 0;
    kept_.Begin(connection().db());
    ASSIGN_OR_RETURN(const std::optional<std::string> sql, args.Text(0));
    ASSIGN_OR_RETURN(const std::optional<std::string> json, args.Text(1));
    ASSIGN_OR_RETURN(const OwnOptions own,
                     OwnOptions::TakeOfCall(json, {"threshold", "pooling", "task", "dimensions"}));
    ASSIGN_OR_RETURN(const double threshold, own.Number("threshold", 0.9, -1, 1));
    RETURN_IF_ERROR(CheckNoneOfAnswers(own.rest()));
    if (!sql.has_value()) return absl::OkStatus();
    ASSIGN_OR_RETURN(CallOptions options, ReadCallOptions(own.rest(), connection()));
    ASSIGN_OR_RETURN(const Embedder embedder, Embedder::Create(own, std::move(options)));
    ASSIGN_OR_RETURN(rows_, EmbedRows(connection().db(), *sql, "select_sql", embedder));
    return Group(threshold);
  }

  bool can_rewind() const override { return kept_.IsCurrent(); }
  void Rewind() override { index_ = 0; }

  bool AtEnd() const override { return index_ >= rows_.size(); }
  absl::Status Next() override {
    ++index_;
    return absl::OkStatus();
  }
  int64_t rowid() const override { return static_cast<int64_t>(index_) + 1; }

  absl::Status Value(int column, sqlite3_context* context) override {
    const EmbeddedRow& row = rows_[index_];
    const std::optional<Likeness>& group = groups_[index_];
    switch (column) {
      case kId:
        sqlite3_result_value(context, row.id.get());
        break;
      case kText:
        if (row.text.has_value()) ResultText(context, *row.text);
        break;
      case kSameAs:
        if (group.has_value()) sqlite3_result_value(context, rows_[group->row].id.get());
        break;
      case kSimilarity:
        if (group.has_value()) sqlite3_result_double(context, group->similarity);
        break;
    }
    return absl::OkStatus();
  }

 private:
  struct Likeness {
    size_t row;
    double similarity;
  };

  absl::Status Group(double threshold) {
    groups_.resize(rows_.size());
    std::vector<size_t> with_text;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (rows_[i].text.has_value()) with_text.push_back(i);
    }
    if (with_text.empty()) return absl::OkStatus();
    VectorPanels panels(rows_[with_text[0]].vector.size());
    std::vector<size_t> firsts;  // those in the panels
    std::vector<std::vector<size_t>> found;
    const absl::Span<const size_t> all = with_text;
    for (size_t begin = 0; begin < all.size(); begin += VectorPanels::kTogether) {
      const absl::Span<const size_t> together = all.subspan(begin, VectorPanels::kTogether);
      std::vector<absl::Span<const float>> vectors;
      for (size_t i : together) vectors.push_back(rows_[i].vector);
      RETURN_IF_ERROR(panels.FindLike(vectors, threshold, &found));
      const size_t known = firsts.size();
      for (size_t at = 0; at < together.size(); ++at) {
        const size_t i = together[at];
        for (size_t j = known; j < firsts.size(); ++j) found[at].push_back(j);
        groups_[i] = MostAlike(i, firsts, found[at], threshold);
        if (groups_[i].has_value()) continue;
        groups_[i] = Likeness{i, 1};
        firsts.push_back(i);
        panels.Add(rows_[i].vector);
      }
    }
    return absl::OkStatus();
  }

  // Of the firsts with these numbers the one that the row is most like, if it is.
  std::optional<Likeness> MostAlike(size_t row, const std::vector<size_t>& firsts,
                                    const std::vector<size_t>& numbers, double threshold) const {
    std::optional<Likeness> most;
    for (size_t number : numbers) {
      const double similarity = Cosine(rows_[firsts[number]], rows_[row]);
      const bool more = most.has_value() ? similarity > most->similarity : similarity >= threshold;
      if (more) most = Likeness{firsts[number], similarity};
      if (similarity == 1) break;  // no other is more like it
    }
    return most;
  }

  std::vector<EmbeddedRow> rows_;
  std::vector<std::optional<Likeness>> groups_;  // of each row
  size_t index_ = 0;
  KeptScan kept_;
};

constexpr TableFunctionSpec kDistinctSpec = {
    .name = "lm_distinct",
    .columns = "id, text TEXT, same_as, similarity REAL",
    .num_columns = 4,
    .arguments = {"select_sql", "options"},
    .missing = "a SELECT is missing: lm_distinct('SELECT id, text FROM ...')",
    .estimated_rows = 1000,
    .open = &MakeCursor<DistinctCursor>};

}  // namespace

int RegisterDistinct(const std::shared_ptr<Connection>& connection) {
  return RegisterTableFunction(connection, &kDistinctSpec);
}

}  // namespace lm
