// Early return for absl::Status and absl::StatusOr.
//
//   RETURN_IF_ERROR(file->Read(offset, bytes));
//   ASSIGN_OR_RETURN(std::unique_ptr<File> file, File::Open(path));
#ifndef LM_ENGINE_BASE_STATUS_MACROS_H_
#define LM_ENGINE_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expr)                                                  \
  do {                                                                         \
    if (absl::Status lm_status_ = (expr); !lm_status_.ok()) return lm_status_; \
  } while (0)

#define LM_CONCAT_INNER_(a, b) a##b
#define LM_CONCAT_(a, b) LM_CONCAT_INNER_(a, b)

#define ASSIGN_OR_RETURN(lhs, expr) \
  LM_ASSIGN_OR_RETURN_(LM_CONCAT_(lm_status_or_, __LINE__), lhs, expr)

#define LM_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                         \
  if (!tmp.ok()) return tmp.status();        \
  lhs = std::move(tmp).value()

#endif  // LM_ENGINE_BASE_STATUS_MACROS_H_
