#include "extension/batch_files/batch_poll.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/file.h"
#include "engine/base/status_macros.h"
#include "extension/connection/statement_call.h"
#include "extension/host/interrupt.h"

namespace lm {
BatchPoll::BatchPoll(Connection& connection, const BatchPollOptions& options, FoundJob job)
    : connection_(connection),
      options_(options),
      job_(std::move(job)),
      store_(&job_),
      until_(absl::Now() + options.most) {}

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
  const absl::Time until = std::min(absl::Now() + length, until_);
  const std::shared_ptr<RunningWork> work = StatementCall::Work();
  const WaitingFor network(work.get(), "network");
  while (absl::Now() < until) {
    if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
    absl::SleepFor(kInterruptInterval);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> BatchPoll::Again() {
  if (waiting_.empty() || absl::Now() >= until_) return false;
  RETURN_IF_ERROR(Sleep(options_.pause));
  round_.swap(waiting_);
  return true;
}

absl::StatusOr<std::optional<BatchReport>> BatchPoll::Advance() {
  if (job_.database->Interrupted()) return absl::CancelledError("interrupted");
  if (round_.empty()) {
    ASSIGN_OR_RETURN(const bool more, Again());
    if (!more && asked_) RETURN_IF_ERROR(job_.store->TellSubmitted());
    if (!more) return std::nullopt;
  }
  JobBatch batch = std::move(round_.front());
  round_.pop_front();
  asked_ = true;
  ASSIGN_OR_RETURN(BatchReport report, Ask(std::move(batch)));
  if (report.batch.state != "ended") waiting_.push_back(report.batch);
  return report;
}

absl::Status BatchPoll::Take(const BatchServer& server, const std::string& file,
                             BatchReport* report) {
  if (file.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(
      const std::shared_ptr<const ScratchFile> answers,
      AskAside(connection_.db(), server, [file](BatchApi& api, const std::atomic<bool>& cancel) {
        return api.Download(file, cancel);
      }));
  ASSIGN_OR_RETURN(BatchQuestions questions,
                   BatchQuestions::Of(connection_, job_.store->job(), server.target));
  BatchImport import(&job_, std::move(questions));
  // By its number: it has no name.
  ASSIGN_OR_RETURN(std::unique_ptr<RandomAccessFile> opened,
                   OpenFile(absl::StrCat("/proc/self/fd/", answers->fd())));
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
absl::StatusOr<BatchReport> BatchPoll::Ask(JobBatch batch) {
  ASSIGN_OR_RETURN(const BatchServer server, OpenBatchServer(connection_, batch.model, batch.url));
  BatchReport report{.batch = std::move(batch)};
  ASSIGN_OR_RETURN(report.remote, AskAside(connection_.db(), server,
                                           [id = report.batch.batch](
                                               BatchApi& api, const std::atomic<bool>& cancel) {
                                             return api.Get(id, cancel);
                                           }));
  report.batch.status = report.remote.status;
  report.batch.note = report.remote.errors;
  if (report.remote.ended()) {
    RETURN_IF_ERROR(Take(server, report.remote.output_file, &report));
    RETURN_IF_ERROR(Take(server, report.remote.error_file, &report));
    report.batch.state = "ended";
  }
  RETURN_IF_ERROR(store_.Update(report.batch));
  return report;
}

}  // namespace lm
