// Matrices of GPTQ (Frantar et al. 2022, arXiv 2210.17323) and AWQ (Lin et al. 2023, arXiv
// 2306.00978) checkpoints, as blocks of GGUF's types. For input i and output o both say
//   w(o, i) = scale(g, o) (code(i, o) - zero(g, o)),   g = the group of i
// with codes of 4 or 8 bits and groups of 128, 64, 32, ... inputs. What it becomes:
//
//   codes   zeros            groups                 type   error
//   4 bits  all 8            runs of 32 inputs n    Q4_0   none: d = scale, the code is the code
//   4 bits  any              runs of 32 inputs n    Q5_0   none: code - zero + 16 is 0 to 31
//   8 bits  all 128          runs of 32 inputs n    Q8_0   none: code - 128 is -128 to 127
//   8 bits  any, and all others                     F16    of the product, 2^-11 of each weight
//
// (Q4_1 would take 20 bytes where Q5_0 takes 22, but its m = -zero scale has 15 bits where F16 has
// 11.) Scales of BF16 or F32 are rounded to F16. Others are those of "act-order", where an input's
// group is given by g_idx and neighbours have different scales.
#ifndef LM_ENGINE_HF_PACKED_ROWS_H_
#define LM_ENGINE_HF_PACKED_ROWS_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "engine/hf/row_source.h"
#include "engine/hf/safetensors.h"

namespace lm {

// How a checkpoint's matrices are packed.
struct PackedScheme {
  bool awq = false;
  int bits = 4;
  int64_t group_size = 128;  // -1: all inputs are one group
  int zero_offset = 0;       // what is added to the zeros as stored: 1 in GPTQ's first format
};

// From the object that config.json has as quantization_config, or quantize_config.json.
// Unimplemented, naming it, for other methods, widths and layouts.
absl::StatusOr<PackedScheme> ReadPackedScheme(const Json& config);

// The words of the matrices that were read last, which takes all of a matrix for any row of it;
// shared by a checkpoint's matrices.
class PackedWords;
std::shared_ptr<PackedWords> MakePackedWords();

// The matrix of `prefix`.qweight, .qzeros, .scales and, where there is one, .g_idx. InvalidArgument
// naming file, tensor, the shape that was wanted and the one that is there. With checkpoints
// (checkpoint.h).
absl::StatusOr<std::unique_ptr<RowSource>> MakePackedRows(const Safetensors& weights,
                                                          const std::string& prefix,
                                                          const PackedScheme& scheme,
                                                          const RowOrder& order,
                                                          std::shared_ptr<PackedWords> words);

}  // namespace lm

#endif  // LM_ENGINE_HF_PACKED_ROWS_H_
