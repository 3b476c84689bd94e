// SubmitAhead: many requests of one caller, in order, without filling the engine's queue.
//
//   SubmitAhead(num_prompts, [&](size_t i) { return session.Submit(prompts[i], "", options); },
//               [&](size_t i, absl::StatusOr<std::shared_ptr<Request>> request) {
//                 ... wait for it, take its answer ...
//               });
#ifndef LM_ENGINE_RUNTIME_SUBMIT_AHEAD_H_
#define LM_ENGINE_RUNTIME_SUBMIT_AHEAD_H_

#include <cstddef>
#include <memory>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "engine/runtime/request.h"

namespace lm {

// Requests of one call that are under way at a time: many times what an engine decodes together,
// and a small part of its queue, which is for all callers.
inline constexpr size_t kMostAhead = 2000;

// Calls take(i, submit(i)) for each i below `count`, in ascending order, with up to kMostAhead
// requests submitted before the first of them is taken. Where submit(i) is ResourceExhausted, the
// queue is full: it is called again once the oldest has been taken, and the error stands only
// where none is under way.
void SubmitAhead(size_t count,
                 absl::FunctionRef<absl::StatusOr<std::shared_ptr<Request>>(size_t)> submit,
                 absl::FunctionRef<void(size_t, absl::StatusOr<std::shared_ptr<Request>>)> take);

}  // namespace lm

#endif  // LM_ENGINE_RUNTIME_SUBMIT_AHEAD_H_
