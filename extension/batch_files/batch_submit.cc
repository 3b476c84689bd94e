#include "extension/batch_files/batch_submit.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/digest.h"
#include "engine/base/status_macros.h"

namespace lm {
namespace {

constexpr int kMostTries = 5;
constexpr absl::Duration kPause = absl::Milliseconds(500);

// A server that says so has begun no batch.
bool SaysNo(const absl::Status& status) {
  return absl::IsInvalidArgument(status) || absl::IsFailedPrecondition(status) ||
         absl::IsPermissionDenied(status) || absl::IsNotFound(status);
}

std::string FileName(const JobBatch& batch) { return absl::StrCat(batch.key, ".jsonl"); }

}  // namespace

BatchSubmit::BatchSubmit(sqlite3* user, const BatchSubmitOptions& options, FoundJob job,
                         BatchServer server, BatchQuestions questions)
    : user_(user),
      options_(options),
      job_(std::move(job)),
      server_(std::move(server)),
      questions_(std::move(questions)),
      rows_(job_.database.get(), job_.store.get()),
      store_(&job_) {}

absl::StatusOr<std::unique_ptr<BatchSubmit>> BatchSubmit::Begin(Connection& connection,
                                                                absl::string_view job,
                                                                const std::string& model,
                                                                const BatchSubmitOptions& options) {
  ASSIGN_OR_RETURN(FoundJob found, OpenJob(connection, job, options.database));
  ASSIGN_OR_RETURN(BatchServer server, OpenBatchServer(connection, model, ""));
  ASSIGN_OR_RETURN(BatchQuestions questions,
                   BatchQuestions::Of(connection, found.store->job(), server.target));
  ASSIGN_OR_RETURN(const std::string name, questions.model());
  RETURN_IF_ERROR(found.store->Plan(name));
  RETURN_IF_ERROR(RecoverRows(found));
  std::unique_ptr<BatchSubmit> submit(new BatchSubmit(connection.db(), options, std::move(found),
                                                      std::move(server), std::move(questions)));
  RETURN_IF_ERROR(submit->store_.Prepare());
  submit->job_.database->Persevere();
  return submit;
}

absl::StatusOr<std::optional<JobBatch>> BatchSubmit::NextOld() {
  if (!old_.has_value()) {
    ASSIGN_OR_RETURN(const std::vector<JobBatch> all, store_.All());
    old_.emplace(all.begin(), all.end());
  }
  while (!old_->empty()) {
    JobBatch batch = std::move(old_->front());
    old_->pop_front();
    // A batch of another server or model is left to statements that submit there.
    if (batch.url != server_.url || batch.model != server_.target.reference) continue;
    ASSIGN_OR_RETURN(const bool taken, store_.Take(&batch));
    if (taken) return batch;
  }
  return std::nullopt;
}

absl::Status BatchSubmit::Write(JobBatch* batch) {
  const ShardLimits& limits = options_.limits;
  ASSIGN_OR_RETURN(std::shared_ptr<ScratchFile> file, ScratchFile::Create());
  BatchLines lines(&job_, &rows_, &questions_, batch->range);
  int64_t last = batch->range.first - 1;
  batch->lines = 0;
  for (std::string line;;) {
    ASSIGN_OR_RETURN(const bool more, lines.Next(&line));
    const int64_t bytes = file->bytes() + static_cast<int64_t>(line.size());
    const bool fits = batch->lines == 0 || bytes <= limits.bytes;
    if (!more || batch->lines == limits.lines || !fits) break;
    RETURN_IF_ERROR(file->Append(line));
    last = lines.number();
    ++batch->lines;
  }
  RETURN_IF_ERROR(file->Flush());
  batch->range.last = last;
  file_ = std::move(file);
  return batch->lines == 0 ? absl::OkStatus() : store_.Update(*batch);
}

absl::StatusOr<std::optional<JobBatch>> BatchSubmit::NextNew() {
  for (;;) {
    ASSIGN_OR_RETURN(const std::vector<BatchRange> ranges, store_.Uncovered(options_.retry));
    bool lost = false;
    for (const BatchRange& range : ranges) {
      JobBatch batch{.range = range, .model = server_.target.reference, .url = server_.url};
      const std::string seed = absl::StrCat(job_.store->worker().name(), "/",
                                            absl::ToUnixNanos(absl::Now()), "/", range.first);
      batch.key = absl::StrCat("sqlite-lm-", DigestOf(seed).Hex());
      ASSIGN_OR_RETURN(const bool added, store_.Add(&batch, options_.limits.lines));
      if (!added) continue;
      RETURN_IF_ERROR(Write(&batch));
      if (batch.lines > 0) return batch;
      RETURN_IF_ERROR(store_.Remove(batch));
      lost = true;  // what asks nothing: it is done with by now
    }
    if (!lost) return std::nullopt;
  }
}

// Rows that were answered meanwhile are not asked again: a file that has some is not used.
absl::Status BatchSubmit::FindFile(JobBatch* batch) {
  ASSIGN_OR_RETURN(
      const std::optional<std::string> found,
      AskAside(user_, server_,
               [name = FileName(*batch)](BatchApi& api, const std::atomic<bool>& cancel) {
                 return api.FindFile(name, cancel);
               }));
  if (found.has_value()) {
    batch->file = *found;
    ASSIGN_OR_RETURN(const int64_t left, rows_.Count(batch->range));
    if (left == batch->lines) return absl::OkStatus();
    batch->note = "not begun: since its file was made, rows of it have changed";
  } else {
    RETURN_IF_ERROR(Write(batch));
    if (batch->lines > 0) return absl::OkStatus();
  }
  batch->state = "ended";
  return store_.Update(*batch);
}

absl::Status BatchSubmit::Upload(JobBatch* batch, bool is_old) {
  if (!batch->file.empty()) return absl::OkStatus();
  if (is_old) RETURN_IF_ERROR(FindFile(batch));
  if (batch->state == "ended") return absl::OkStatus();
  if (batch->file.empty()) {
    ASSIGN_OR_RETURN(batch->file, AskAside(user_, server_,
                                           [name = FileName(*batch), file = file_](
                                               BatchApi& api, const std::atomic<bool>& cancel) {
                                             return api.Upload(name, file, cancel);
                                           }));
  }
  file_.reset();
  batch->state = "submitting";
  return store_.Update(*batch);
}

// Whether there is a batch of that file only its server can tell, where an answer got lost.
absl::Status BatchSubmit::Create(JobBatch* batch, bool is_old) {
  for (int tries = 0;; ++tries) {
    std::optional<RemoteBatch> remote;
    if (is_old || tries > 0) {
      ASSIGN_OR_RETURN(
          remote, AskAside(user_, server_,
                           [file = batch->file](BatchApi& api, const std::atomic<bool>& cancel) {
                             return api.FindBatch(file, cancel);
                           }));
    }
    if (!remote.has_value()) {
      absl::StatusOr<RemoteBatch> made = AskAside(
          user_, server_,
          [file = batch->file, key = batch->key](BatchApi& api, const std::atomic<bool>& cancel) {
            return api.Create(file, key, cancel);
          });
      if (absl::IsUnavailable(made.status()) && tries < kMostTries) {
        absl::SleepFor(kPause);
        continue;
      }
      if (!made.ok()) {
        batch->note = std::string(made.status().message());
        if (SaysNo(made.status())) batch->state = "ended";
        store_.Update(*batch).IgnoreError();
        return made.status();
      }
      remote = *std::move(made);
    }
    batch->batch = remote->id;
    batch->status = remote->status;
    batch->note.clear();
    batch->state = "submitted";
    return store_.Update(*batch);
  }
}

absl::StatusOr<std::optional<JobBatch>> BatchSubmit::Advance() {
  if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
  ASSIGN_OR_RETURN(std::optional<JobBatch> batch, NextOld());
  const bool is_old = batch.has_value();
  if (!is_old) {
    ASSIGN_OR_RETURN(batch, NextNew());
  }
  if (!batch.has_value()) {
    RETURN_IF_ERROR(job_.store->TellSubmitted());
    return std::nullopt;
  }
  RETURN_IF_ERROR(Upload(&*batch, is_old));
  if (batch->state == "submitting") RETURN_IF_ERROR(Create(&*batch, is_old));
  return batch;
}

}  // namespace lm
