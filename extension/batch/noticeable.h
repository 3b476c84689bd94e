// Why a shadow is not run: something, or somebody, could notice it.
#ifndef LM_EXTENSION_BATCH_NOTICEABLE_H_
#define LM_EXTENSION_BATCH_NOTICEABLE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "extension/host/statement.h"

namespace lm {

// FailedPrecondition; `why` is a clause.
inline absl::Status Noticeable(absl::string_view why) { return absl::FailedPreconditionError(why); }

// Of what is told from its program.
template <typename T>
absl::StatusOr<T> Readable(absl::StatusOr<T> read) {
  if (read.ok() || EndsStatementAround(read.status())) return read;
  return Noticeable("its program could not be read");
}

}  // namespace lm

#endif  // LM_EXTENSION_BATCH_NOTICEABLE_H_
