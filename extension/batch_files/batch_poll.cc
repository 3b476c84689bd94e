#include "extension/batch_files/batch_poll.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/monotonic_time.h"
#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/interrupt.h"

namespace lm {
namespace {

// Whether to ask once more is of no use before somebody has done something.
bool IsFinal(const absl::Status& asked) { return !asked.ok() && !absl::IsUnavailable(asked); }

// `is_servers`: what the server itself said. That it knows no such batch, or file, is said of it
// (by 404, or as a request that is wrong); that a model is not registered here, or a key is
// refused, is not.
std::string NoteOf(const JobBatch& batch, const absl::Status& asked, bool is_servers) {
  const bool may_be_lost = absl::IsNotFound(asked) || absl::IsInvalidArgument(asked);
  if (!is_servers || !may_be_lost) return std::string(asked.message());
  return absl::StrCat(asked.message(), " (DELETE FROM lm_job_batches WHERE number = ", batch.number,
                      " forgets the batch: rows without an answer wait again)");
}

}  // namespace

BatchPoll::BatchPoll(Connection& connection, const BatchPollOptions& options, FoundJob job)
    : connection_(connection),
      options_(options),
      job_(std::move(job)),
      store_(&job_),
      until_(MonotonicTime::Now() + options.most) {}

absl::StatusOr<std::unique_ptr<BatchPoll>> BatchPoll::Begin(Connection& connection,
                                                            absl::string_view job,
                                                            const BatchPollOptions& options) {
  ASSIGN_OR_RETURN(FoundJob found, OpenJob(connection, job, options.database));
  std::unique_ptr<BatchPoll> poll(new BatchPoll(connection, options, std::move(found)));
  RETURN_IF_ERROR(poll->store_.Prepare());
  poll->job_.database->Persevere();
  ASSIGN_OR_RETURN(const std::vector<JobBatch> all, poll->store_.All());
  for (const JobBatch& batch : all) {
    if (batch.state == "submitted") poll->round_.push_back(batch);
  }
  return poll;
}

absl::Status BatchPoll::Sleep(absl::Duration length) {
  const MonotonicTime until = std::min(MonotonicTime::Now() + length, until_);
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  const WaitingFor network(work.get(), "network");
  while (MonotonicTime::Now() < until) {
    if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
    absl::SleepFor(kInterruptInterval);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> BatchPoll::Again() {
  if (waiting_.empty() || MonotonicTime::Now() >= until_) return false;
  RETURN_IF_ERROR(Sleep(options_.pause));
  round_.swap(waiting_);
  return true;
}

absl::StatusOr<std::optional<BatchReport>> BatchPoll::Advance() {
  if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
  if (round_.empty()) {
    ASSIGN_OR_RETURN(const bool more, Again());
    if (!more) {
      RETURN_IF_ERROR(heard_ ? job_.store->TellSubmitted() : failure_);
      return std::nullopt;
    }
  }
  JobBatch batch = std::move(round_.front());
  round_.pop_front();
  ASSIGN_OR_RETURN(BatchReport report, Ask(std::move(batch)));
  failure_.Update(report.asked);
  heard_ |= report.asked.ok();
  if (report.batch.state != "ended" && !IsFinal(report.asked)) waiting_.push_back(report.batch);
  return report;
}

absl::Status BatchPoll::Take(const BatchServer& server, const std::string& file,
                             BatchReport* report) {
  if (file.empty()) return absl::OkStatus();
  const absl::StatusOr<std::shared_ptr<const ScratchFile>> answers =
      AskAside(connection_.db(), server, [file](BatchApi& api, const std::atomic<bool>& cancel) {
        return api.Download(file, cancel);
      });
  report->asked.Update(answers.status());
  if (!answers.ok()) return absl::OkStatus();
  ASSIGN_OR_RETURN(BatchQuestions questions,
                   BatchQuestions::Of(connection_, job_.store->job(), server.target));
  BatchImport import(&job_, std::move(questions));
  // By its number: it has no name.
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> opened,
                   OpenFile(absl::StrCat("/proc/self/fd/", (*answers)->fd())));
  RETURN_IF_ERROR(import.Open(std::move(opened)));
  for (;;) {
    ASSIGN_OR_RETURN(const bool more, import.Advance());
    std::vector<std::string> refusals = import.TakeRefusals();
    if (!refusals.empty()) report->refusal = std::move(refusals.back());
    if (!more) break;
  }
  report->imported += import.counts();
  return absl::OkStatus();
}

// A batch's end is written down when its answers have been taken; a process that is killed before
// takes them again, which changes nothing.
absl::Status BatchPoll::Hear(const BatchServer& server, BatchReport* report) {
  absl::StatusOr<RemoteBatch> remote =
      AskAside(connection_.db(), server,
               [id = report->batch.batch](BatchApi& api, const std::atomic<bool>& cancel) {
                 return api.Get(id, cancel);
               });
  report->asked = remote.status();
  if (!remote.ok()) return absl::OkStatus();
  report->remote = *std::move(remote);
  report->batch.status = report->remote.status;
  report->batch.note = report->remote.errors;
  if (!report->remote.ended()) return absl::OkStatus();
  RETURN_IF_ERROR(Take(server, report->remote.output_file, report));
  RETURN_IF_ERROR(Take(server, report->remote.error_file, report));
  if (report->asked.ok()) report->batch.state = "ended";
  return absl::OkStatus();
}

absl::StatusOr<BatchReport> BatchPoll::Ask(JobBatch batch) {
  BatchReport report{.batch = std::move(batch)};
  const absl::StatusOr<BatchServer> server =
      OpenBatchServer(connection_, report.batch.model, report.batch.url);
  report.asked = server.status();
  if (server.ok()) RETURN_IF_ERROR(Hear(*server, &report));
  if (absl::IsCancelled(report.asked)) return report.asked;
  if (!report.asked.ok()) report.batch.note = NoteOf(report.batch, report.asked, server.ok());
  RETURN_IF_ERROR(store_.Update(report.batch));
  return report;
}

}  // namespace lm
