#include "extension/batch_files/batch_export.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/new_file.h"
#include "engine/base/status_macros.h"
#include "extension/host/ask_authorizer.h"

namespace lm {
namespace {

constexpr int64_t kPage = 500;  // rows

std::string ShardPath(const std::string& prefix, int64_t shard) {
  return absl::StrCat(prefix, "-", absl::Dec(shard, absl::kZeroPad5), ".jsonl");
}

}  // namespace

absl::StatusOr<bool> BatchLines::ReadPage() {
  next_ = 0;
  page_.clear();
  ASSIGN_OR_RETURN(const std::vector<JobRow> rows, rows_.Read(range_, kPage));
  RETURN_IF_ERROR(job_.store->CheckThere());  // or there are no rows of that name any more
  if (rows.empty()) return false;
  range_.first = rows.back().number + 1;
  if (!range_.submitted) RETURN_IF_ERROR(submitted_.Read(job_.store->job().name));
  std::vector<std::pair<int64_t, JobAnswer>> others;  // no model need answer these rows
  for (const JobRow& row : rows) {
    if (!range_.submitted && submitted_.Contains(row.number)) continue;
    if (row.prompt.ok() && !row.prompt->has_value()) {
      others.emplace_back(row.number,
                          JobAnswer{.null_prompt = true, .asked = questions_.question().Of(row)});
      continue;
    }
    if (std::optional<Generation> kept = questions_.question().Kept(row)) {
      others.emplace_back(row.number, JobAnswerOf(*std::move(kept), questions_.options().on_error,
                                                  questions_.question().Of(row)));
      continue;
    }
    absl::StatusOr<RequestSpec> spec = questions_.Ask(row);
    if (spec.ok()) {
      page_.push_back({row.number, *std::move(spec)});
      continue;
    }
    // Any other code is of what the options ask for: all rows have it.
    if (!absl::IsInvalidArgument(spec.status())) return spec.status();
    others.emplace_back(
        row.number, JobAnswerOf(Generation{.status = spec.status()}, questions_.options().on_error,
                                questions_.question().Of(row)));
  }
  for (auto next = others.begin(); next != others.end();) {
    auto other = next;
    RETURN_IF_ERROR(job_.store->Transact([&]() -> absl::Status {
      for (other = next; other != others.end() && !job_.store->WantsCommit(); ++other) {
        RETURN_IF_ERROR(rows_.Complete(other->first, other->second).status());
      }
      RETURN_IF_ERROR(job_.store->broken());
      return job_.store->EndIfOver(/*anew=*/false);
    }));
    next = other;
  }
  return true;
}

absl::StatusOr<bool> BatchLines::Next(std::string* line) {
  while (next_ == page_.size()) {
    if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
    ASSIGN_OR_RETURN(const bool more, ReadPage());
    if (!more) return false;
  }
  const Question& question = page_[next_++];
  number_ = question.number;
  ASSIGN_OR_RETURN(*line, questions_.Line(question.number, question.spec));
  return true;
}

BatchExport::BatchExport(const BatchExportOptions& options, FoundJob job, BatchQuestions questions)
    : options_(options),
      job_(std::move(job)),
      questions_(std::move(questions)),
      rows_(job_.database.get(), job_.store.get()),
      lines_(&job_, &rows_, &questions_, {.failed = options.retry, .submitted = false}),
      current_{.shard = 1} {}

absl::StatusOr<std::unique_ptr<BatchExport>> BatchExport::Begin(Connection& connection,
                                                                absl::string_view job,
                                                                const BatchExportOptions& options) {
  if (options.path.has_value()) {
    RETURN_IF_ERROR(CheckMayAttach(connection.db(), ShardPath(*options.path, 1)));
  }
  ASSIGN_OR_RETURN(FoundJob found, OpenJob(connection, job, options.database));
  ASSIGN_OR_RETURN(BatchQuestions questions,
                   BatchQuestions::Of(connection, found.store->job(), options.target));
  ASSIGN_OR_RETURN(const std::string model, questions.model());
  RETURN_IF_ERROR(found.store->Plan(model));
  RETURN_IF_ERROR(RecoverRows(found));
  found.database->Persevere();
  return std::unique_ptr<BatchExport>(
      new BatchExport(options, std::move(found), std::move(questions)));
}

absl::StatusOr<bool> BatchExport::Hold() {
  if (!held_.empty()) return true;
  return lines_.Next(&held_);
}

absl::StatusOr<std::optional<ExportedLines>> BatchExport::Advance() {
  if (options_.path.has_value()) return NextFile();
  ASSIGN_OR_RETURN(const bool more, Hold());
  if (!more) return std::nullopt;
  const auto bytes = static_cast<int64_t>(held_.size());
  const bool full = current_.lines == options_.limits.lines ||
                    (current_.lines > 0 && current_.bytes + bytes > options_.limits.bytes);
  if (full) current_ = {.shard = current_.shard + 1};
  ++current_.lines;
  current_.bytes += bytes;
  held_.pop_back();
  return ExportedLines{
      .shard = current_.shard, .lines = 1, .bytes = bytes, .text = std::exchange(held_, "")};
}

absl::StatusOr<std::optional<ExportedLines>> BatchExport::NextFile() {
  ASSIGN_OR_RETURN(const bool any, Hold());
  if (!any) return std::nullopt;
  ExportedLines shard{.shard = current_.shard++};
  shard.text = ShardPath(*options_.path, shard.shard);
  ASSIGN_OR_RETURN(const std::unique_ptr<NewFile> file, NewFile::Create(shard.text));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, Hold());
    const int64_t bytes = shard.bytes + static_cast<int64_t>(held_.size());
    const bool fits = shard.lines == 0 || bytes <= options_.limits.bytes;
    if (!more || shard.lines == options_.limits.lines || !fits) break;
    RETURN_IF_ERROR(file->Append(held_));
    held_.clear();
    ++shard.lines;
    shard.bytes = bytes;
  }
  RETURN_IF_ERROR(file->Finish());
  return shard;
}

}  // namespace lm
