#include "extension/tables/each_batch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "extension/host/flat_array.h"
#include "extension/host/sqlite_value.h"

namespace lm {

EachBatch::EachBatch(std::string system, CallOptions options)
    : system_(std::move(system)),
      options_(std::make_shared<const CallOptions>(std::move(options))) {}

absl::StatusOr<std::unique_ptr<EachBatch>> EachBatch::Create(absl::string_view json,
                                                             std::string system,
                                                             CallOptions options) {
  std::unique_ptr<EachBatch> batch(new EachBatch(std::move(system), std::move(options)));
  RETURN_IF_ERROR(
      ReadFlatArray(json, "prompts", [&batch](int64_t index, ArrayElement element) -> absl::Status {
        if (element.kind == ArrayElement::Kind::kBool) {
          return absl::InvalidArgumentError(
              absl::StrCat("prompts[", index, "] must be a string or null, got ", element.text));
        }
        batch->prompts_.emplace_back();
        if (element.kind != ArrayElement::Kind::kNull) {
          batch->prompts_.back() = std::move(element.text);
        }
        return absl::OkStatus();
      }));
  batch->PushMore();
  return batch;
}

void EachBatch::PushMore() {
  for (; pushed_ < prompts_.size() && queue_.HasRoom(); ++pushed_) {
    std::optional<std::string> prompt = std::move(prompts_[pushed_]);
    absl::Status bad = prompt.has_value() ? CheckText(*prompt, "prompt") : absl::OkStatus();
    RowPrompt row{.prompt = std::move(prompt), .system = system_, .options = options_};
    if (!bad.ok()) row.prompt = std::move(bad);
    queue_.Push(std::move(row));
  }
}

void EachBatch::Next() {
  queue_.Pop();
  ++index_;
  PushMore();
}

}  // namespace lm
