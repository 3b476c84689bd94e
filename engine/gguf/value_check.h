// ValueCheck: looks at the values of a file's tensors while the bytes of the file pass, whoever
// reads them.
//
//   ValueCheck check(tensors, begin, end);
//   RETURN_IF_ERROR(check.Add(bytes));  // from `begin` on, in order, up to `end`
//   RETURN_IF_ERROR(check.Add(more));   // check.missing() bytes from `end` on
#ifndef LM_ENGINE_GGUF_VALUE_CHECK_H_
#define LM_ENGINE_GGUF_VALUE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "engine/gguf/tensor_directory.h"

namespace lm {

// Of the blocks that begin in [begin, end), so that pieces of a file have each block once.
class ValueCheck {
 public:
  // `tensors` are some of one file, stored plainly and ordered by offset. REQUIRES: they outlive
  // this.
  ValueCheck(absl::Span<const TensorInfo* const> tensors, uint64_t begin, uint64_t end);

  // InvalidArgument, naming the tensor and the first bad value of these bytes (CheckFinite).
  absl::Status Add(absl::string_view bytes);

  // What the last block lacks.
  size_t missing() const;

 private:
  // Blocks that begin at the offset `at`.
  static absl::Status Check(const TensorInfo& tensor, uint64_t at, absl::string_view blocks);

  absl::Span<const TensorInfo* const> tensors_;  // the first is the one that passes, or comes next
  uint64_t at_;                                  // of the next byte
  uint64_t end_;
  std::string partial_;  // of a block whose other bytes have not passed yet
};

}  // namespace lm

#endif  // LM_ENGINE_GGUF_VALUE_CHECK_H_
