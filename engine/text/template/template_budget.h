// What rendering a chat template may cost: a template is part of a model file, and so untrusted.
#ifndef LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_BUDGET_H_
#define LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_BUDGET_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/base/checkpoint.h"
#include "engine/text/template/template_memory.h"

namespace lm {

// For what a template does wrong.
inline absl::Status TemplateError(absl::string_view what) {
  return absl::InvalidArgumentError(what);
}

// Of one render. Everything that takes time or memory is paid for first, and so this is where a
// render has its checkpoints (base/checkpoint.h).
//
// Steps and bytes bound the time, which an interrupt may end at any moment. Templates look back
// from each message at those before it, and add it to a copy of what they have said so far, so that
// both grow with the square of a conversation: the bounds leave room for some thousand messages.
class TemplateBudget {
 public:
  // The longest known template takes some thousand steps for a conversation of ten messages.
  static constexpr int64_t kSteps = 5000000;
  static constexpr int64_t kStepsPerInput = 10000;  // message, member or element of the input
  static constexpr int64_t kStepsPerInputByte = 50;
  static constexpr int64_t kBytes = 320 << 20;
  static constexpr int64_t kBytesPerInputByte = 4000;

  // At any one time, besides the input. A text that is looped over takes 32 bytes a character, and
  // 150 where that is not ASCII.
  static constexpr int64_t kMemory = 64 << 20;
  static constexpr int64_t kMemoryPerInput = 1000;
  static constexpr int64_t kMemoryPerInputByte = 100;

  // The stack that expressions, statements, macros and filters within each other take: what a level
  // of theirs does differs from compiler to compiler. What runs in the innermost comes on top.
  static constexpr int64_t kStackBytes = 176 << 10;

  // `inputs` and `input_bytes` are the values and the bytes that the template is given.
  TemplateBudget(int64_t inputs, int64_t input_bytes)
      : max_steps_(kSteps + inputs * kStepsPerInput + input_bytes * kStepsPerInputByte),
        max_bytes_(kBytes + input_bytes * kBytesPerInputByte),
        max_memory_(kMemory + inputs * kMemoryPerInput + input_bytes * kMemoryPerInputByte) {}

  // InvalidArgument, naming the limit, where that is more than is left.
  absl::Status Steps(int64_t count) {
    steps_ += count;
    return steps_ <= max_steps_ ? Work(count, count * kBytesPerStep) : TooManySteps();
  }
  // The same for bytes of text that are copied or made, and for those that are only looked at.
  absl::Status Bytes(int64_t count) {
    bytes_ += count;
    return bytes_ <= max_bytes_ ? Work(count, count) : TooManyBytes();
  }
  absl::Status Looks(int64_t count) {
    bytes_ += count;
    return bytes_ <= max_bytes_ ? Work(count, 0) : TooManyBytes();
  }

  // Called by what calls itself, on the thread that made the budget.
  absl::Status CheckStack() const {
    return outermost_ - Here() <= kStackBytes ? absl::OkStatus() : TooDeep();
  }

 private:
  static constexpr int64_t kCheckedWork = 1 << 15;
  static constexpr int64_t kBytesPerStep = 32;  // of what makes a list, a value

  // `memory` is what may be taken for it.
  absl::Status Work(int64_t count, int64_t memory) {
    unchecked_ += count;
    if (unchecked_ < kCheckedWork) return absl::OkStatus();
    unchecked_ = 0;
    return memory_.held() + memory <= max_memory_ ? Checkpoint() : TooMuchMemory();
  }

  // The stack grows downward.
  static int64_t Here() { return reinterpret_cast<intptr_t>(__builtin_frame_address(0)); }
  static absl::Status TooDeep();
  absl::Status TooManySteps() const;
  absl::Status TooManyBytes() const;
  absl::Status TooMuchMemory() const;

  int64_t steps_ = 0;
  int64_t bytes_ = 0;
  int64_t unchecked_ = 0;  // both, since the last checkpoint
  const int64_t outermost_ = Here();
  const int64_t max_steps_;
  const int64_t max_bytes_;
  const int64_t max_memory_;
  TemplateMemory memory_;
};

}  // namespace lm

#endif  // LM_ENGINE_TEXT_TEMPLATE_TEMPLATE_BUDGET_H_
