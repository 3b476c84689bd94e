// What rendering a chat template may cost: a template is part of a model file, and so untrusted.
#ifndef LM_ENGINE_TEXT_TEMPLATE_BUDGET_H_
#define LM_ENGINE_TEXT_TEMPLATE_BUDGET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/checkpoint.h"

namespace lm {

// For what a template does wrong.
inline absl::Status TemplateError(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// Of one render. Everything that takes time or memory is paid for first, and so this is where a
// render has its checkpoints (base/checkpoint.h).
class TemplateBudget {
 public:
  // The longest known template takes some thousand steps for a conversation of ten messages.
  static constexpr int64_t kSteps = 1000000;
  static constexpr int64_t kStepsPerInput = 200;  // message, member or element of the input
  static constexpr int64_t kBytes = 16 << 20;
  static constexpr int64_t kBytesPerInputByte = 40;

  // The stack that expressions, statements, macros and filters within each other take: what a level
  // of theirs does differs from compiler to compiler. What runs in the innermost comes on top.
  static constexpr int64_t kStackBytes = 176 << 10;

  // `inputs` and `input_bytes` are the values and the bytes that the template is given.
  TemplateBudget(int64_t inputs, int64_t input_bytes)
      : max_steps_(kSteps + inputs * kStepsPerInput),
        max_bytes_(kBytes + input_bytes * kBytesPerInputByte) {}

  // InvalidArgument, naming the limit, where that is more than is left.
  absl::Status Steps(int64_t count) {
    steps_ += count;
    return steps_ <= max_steps_ ? Work(count) : TooManySteps();
  }
  // The same for bytes of text that are read, copied or made.
  absl::Status Bytes(int64_t count) {
    bytes_ += count;
    return bytes_ <= max_bytes_ ? Work(count) : TooManyBytes();
  }

  // Called by what calls itself, on the thread that made the budget.
  absl::Status CheckStack() const {
    return outermost_ - Here() <= kStackBytes ? absl::OkStatus() : TooDeep();
  }

 private:
  static constexpr int64_t kCheckedWork = 1 << 15;

  absl::Status Work(int64_t count) {
    unchecked_ += count;
    if (unchecked_ < kCheckedWork) return absl::OkStatus();
    unchecked_ = 0;
    return Checkpoint();
  }

  // The stack grows downward.
  static int64_t Here() { return reinterpret_cast<intptr_t>(__builtin_frame_address(0)); }
  static absl::Status TooDeep();
  absl::Status TooManySteps() const;
  absl::Status TooManyBytes() const;

  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int64_t unchecked_ = 0;  // both, since the last checkpoint
  const int64_t outermost_ = Here();
  int64_t max_steps_;
  int64_t max_bytes_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_BUDGET_H_
