#include "extension/batch_files/batch_import.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/printable.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

// Of a transaction.
constexpr size_t kLinesEach = 256;
constexpr size_t kMostBytesEach = 16 << 20;
constexpr size_t kMostLineBytes = 64 << 20;

}  // namespace

ImportCounts& ImportCounts::operator+=(const ImportCounts& other) {
  lines += other.lines;
  done += other.done;
  failed += other.failed;
  again += other.again;
  unbegun += other.unbegun;
  refused += other.refused;
  return *this;
}

// Of one transaction: it counts once that is committed.
struct BatchImport::Taken {
  ImportCounts counts;
  std::vector<std::string> refusals;
  std::vector<std::pair<RequestSpec, Generation>> answers;

  void Refuse(int64_t line, absl::string_view why) {
    ++counts.refused;
    refusals.push_back(absl::StrCat("line ", line, " ", why));
  }
};

BatchImport::BatchImport(FoundJob* job, BatchQuestions questions)
    : job_(*job), questions_(std::move(questions)), rows_(job_.database.get(), job_.store.get()) {}

absl::StatusOr<std::unique_ptr<BatchImport>> BatchImport::Begin(
    Connection& connection, absl::string_view job, const std::optional<std::string>& database) {
  ASSIGN_OR_RETURN(FoundJob found, OpenJob(connection, job, database));
  ASSIGN_OR_RETURN(BatchQuestions questions,
                   BatchQuestions::Of(connection, found.store->job(), {}));
  auto held = std::make_unique<FoundJob>(std::move(found));
  auto import = std::make_unique<BatchImport>(held.get(), std::move(questions));
  import->own_job_ = std::move(held);
  return import;
}

absl::Status BatchImport::Open(const std::string& path) {
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> file, OpenFile(path));
  return Open(std::move(file));
}

absl::Status BatchImport::Open(std::unique_ptr<RandomAccessFile> file) {
  lines_ = std::make_unique<LineReader>(std::move(file), kMostLineBytes);
  RETURN_IF_ERROR(RecoverRows(job_));
  job_.database->Persevere();
  return absl::OkStatus();
}

absl::Status BatchImport::Apply(int64_t at, absl::string_view text, Taken* taken) {
  const absl::StatusOr<BatchLine> line = ReadBatchLine(text);
  if (!line.ok()) {
    taken->Refuse(at, line.status().message());
    return absl::OkStatus();
  }
  if (line->job != job_.store->job().name) {
    taken->Refuse(at, absl::StrCat("is of the job '", Printable(line->job), "'"));
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const std::optional<BatchRows::Found> found, rows_.Find(line->number));
  if (!found.has_value()) {
    taken->Refuse(at, absl::StrCat("is of row ", line->number, ", which the job has not"));
    return absl::OkStatus();
  }
  const std::string which = absl::StrCat("is of row ", line->number, ", id ", found->id, ", ");
  const JobRow& row = found->row;
  const bool asks = row.prompt.ok() && row.prompt->has_value() && row.system.ok();
  absl::StatusOr<RequestSpec> spec = absl::InvalidArgumentError("asks nothing");
  if (asks) spec = questions_.Ask(row);
  if (!spec.ok() || !questions_.Asked(*line, *spec)) {
    taken->Refuse(at, which + "whose prompt, system prompt or options have changed since");
    return absl::OkStatus();
  }
  if (absl::IsUnavailable(line->failure)) {
    ++taken->counts.unbegun;
    return absl::OkStatus();
  }
  Generation generation = questions_.Answer(*line, *spec);
  const bool ok = generation.status.ok();
  if (found->state == "done" || (found->state == "failed" && !ok)) {
    ++taken->counts.again;
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(
      const JobStore::Outcome outcome,
      rows_.Complete(line->number, JobAnswerOf(generation, questions_.options().on_error,
                                               questions_.question().Of(row))));
  switch (outcome) {
    case JobStore::Outcome::kLost:
      taken->Refuse(at, which + "which another run is at");
      return absl::OkStatus();
    case JobStore::Outcome::kKept:  // and imported again, once the target is mended
      return job_.store->broken();
    case JobStore::Outcome::kFailed:
      ++taken->counts.failed;
      break;
    case JobStore::Outcome::kDone:
      ++taken->counts.done;
      break;
  }
  if (ok) taken->answers.emplace_back(*std::move(spec), std::move(generation));
  return absl::OkStatus();
}

absl::StatusOr<bool> BatchImport::Advance() {
  if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
  Lines lines;
  bool more = true;
  for (size_t bytes = 0; lines.size() < kLinesEach && bytes < kMostBytesEach;) {
    absl::string_view line;
    ASSIGN_OR_RETURN(more, lines_->Next(&line));
    if (!more) break;
    bytes += line.size();
    lines.emplace_back(lines_->number(), line);
  }
  size_t next = 0;
  do {
    RETURN_IF_ERROR(Take(lines, /*last=*/!more, &next));
  } while (next < lines.size());
  return more;
}

absl::Status BatchImport::Take(const Lines& lines, bool last, size_t* next) {
  Taken taken;
  size_t at = 0;
  RETURN_IF_ERROR(job_.store->Transact([&]() -> absl::Status {
    taken = {};
    RETURN_IF_ERROR(job_.store->CheckThere());
    for (at = *next; at < lines.size() && !job_.store->WantsCommit(); ++at) {
      const auto& [number, line] = lines[at];
      ++taken.counts.lines;
      if (!line.empty()) RETURN_IF_ERROR(Apply(number, line, &taken));
    }
    const bool changed = taken.counts.done + taken.counts.failed > 0;
    const bool ends = last && at == lines.size();
    return changed || ends ? job_.store->EndIfOver(/*anew=*/!changed) : absl::OkStatus();
  }));
  *next = at;
  for (const auto& [spec, generation] : taken.answers) questions_.Remember(spec, generation);
  questions_.FlushMemo();
  counts_ += taken.counts;
  for (std::string& refusal : taken.refusals) refusals_.push_back(std::move(refusal));
  return absl::OkStatus();
}

}  // namespace lm
