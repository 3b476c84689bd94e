#include "extension/each_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/flat_array.h"
#include "extension/interrupt.h"
#include "extension/sqlite_value.h"

namespace lm {

EachBatch::EachBatch(std::string system, Session session, GenerationOptions options)
    : system_(std::move(system)), session_(std::move(session)), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<EachBatch>> EachBatch::Create(absl::string_view json,
                                                             std::string system, Session session,
                                                             GenerationOptions options) {
  std::unique_ptr<EachBatch> batch(
      new EachBatch(std::move(system), std::move(session), std::move(options)));
  RETURN_IF_ERROR(
      ReadFlatArray(json, "prompts", [&batch](int64_t index, ArrayElement element) -> absl::Status {
        if (element.kind == ArrayElement::Kind::kBool) {
          return absl::InvalidArgumentError(
              absl::StrCat("prompts[", index, "] must be a string or null, got ", element.text));
        }
        Row row;
        if (element.kind != ArrayElement::Kind::kNull) row.prompt = std::move(element.text);
        batch->rows_.push_back(std::move(row));
        return absl::OkStatus();
      }));
  batch->SubmitMore();
  return batch;
}

EachBatch::~EachBatch() {
  for (const Row& row : rows_) {
    if (row.request != nullptr) row.request->Cancel();
  }
}

void EachBatch::SubmitMore() {
  for (; submitted_ < rows_.size(); ++submitted_) {
    Row& row = rows_[submitted_];
    if (!row.prompt.has_value()) continue;
    row.refused = CheckText(*row.prompt, "prompt");
    if (row.refused.ok()) {
      absl::StatusOr<std::shared_ptr<Request>> request =
          session_.Submit(*row.prompt, system_, options_);
      // A full queue has room again once an answer that is waited for has come.
      if (absl::IsResourceExhausted(request.status()) && submitted_ > index_) return;
      row.refused = request.status();
      if (request.ok()) row.request = *std::move(request);
    }
    row.prompt->clear();
    row.prompt->shrink_to_fit();
  }
}

absl::Status EachBatch::AwaitCurrent(sqlite3* db) {
  if (fork_guard_.forked()) return ForkGuard::Error();
  if (submitted_ < rows_.size()) SubmitMore();
  Row& row = rows_[index_];
  current_ = EachResult();
  if (!row.prompt.has_value()) {
    current_.null_prompt = true;
  } else if (row.request == nullptr) {
    current_.generation.status = row.refused;
  } else {
    RETURN_IF_ERROR(Await(db, *row.request));
    current_.generation = row.request->result();
    current_.generation.status = GenerationStatus(current_.generation);
    row.request.reset();
  }
  return absl::OkStatus();
}

}  // namespace lm
