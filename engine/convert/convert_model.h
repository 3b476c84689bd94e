// Writes a model, a Hugging Face directory or a GGUF file, as a GGUF file of another type.
//
//   ASSIGN_OR_RETURN(ConvertReport report, ConvertModel("/models/Qwen3-0.6B", "qwen3.gguf",
//   "Q4_K_M", 2));
#ifndef LM_ENGINE_CONVERT_CONVERT_MODEL_H_
#define LM_ENGINE_CONVERT_CONVERT_MODEL_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/convert/observing_backend.h"

namespace lm {

struct ConvertReport {
  int64_t tensors = 0;
  int64_t source_bytes = 0;
  int64_t bytes = 0;
};

// `type` is F32, F16, BF16, Q8_0, Q6_K, Q4_0 or Q4_K_M. Vectors, routers and learned positions stay
// as they are, and a tensor that has the type already is copied; with Q4_0 and Q4_K_M the head is
// Q6_K, with Q4_K_M so are attn_qkv and in half of the layers attn_v and ffn_down, as llama.cpp has
// it. Rows of no whole 256 values are Q5_0 in place of Q4_K and Q8_0 in place of Q6_K; those of no
// whole 32, F16.
//
// What is at `destination` is never written over: AlreadyExists. The file appears there when it is
// complete; until then it is `destination` and ".part", which is removed where this fails or the
// thread's CheckpointScope is interrupted (Cancelled). Takes memory for a piece of a tensor.
// Errors of a tensor's columns are weighed by their importance, where there is one (text_runs.h).
// Before the file appears, try_out(its path until then) is called: what that returns, this does.
absl::StatusOr<ConvertReport> ConvertModel(
    const std::string& source, const std::string& destination, const std::string& type,
    int num_threads, const Importance& importance = {},
    absl::FunctionRef<absl::Status(const std::string& path)> try_out = [](const std::string&) {
      return absl::OkStatus();
    });

// OK where type and destination are such as ConvertModel wants them now, for those who have much to
// do before.
absl::Status CheckConversion(const std::string& destination, const std::string& type);

}  // namespace lm

#endif  // LM_ENGINE_CONVERT_CONVERT_MODEL_H_
