// A file whose readers can be told to give up.
#ifndef LM_ENGINE_BASE_CANCELLABLE_FILE_H_
#define LM_ENGINE_BASE_CANCELLABLE_FILE_H_

#include <atomic>
#include <memory>

#include "engine/base/file.h"

namespace lm {

// `file`, but once `cancel` is set every read of it is Cancelled, within a mebibyte.
// REQUIRES: `cancel` outlives the result.
std::unique_ptr<RandomAccessFile> MakeCancellable(std::shared_ptr<const RandomAccessFile> file,
                                                  const std::atomic<bool>& cancel);

}  // namespace lm

#endif  // LM_ENGINE_BASE_CANCELLABLE_FILE_H_
