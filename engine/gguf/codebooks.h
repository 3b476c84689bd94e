// The codebooks of IQ1 to IQ3: runs of 8 (IQ3: 4) codes of 2 (IQ3: 3) bits that the vectors of a
// lattice were chosen for, once and for all (ggml-common.h: iq2xxs_grid and so on). They are part
// of the format.
#ifndef LM_ENGINE_GGUF_CODEBOOKS_H_
#define LM_ENGINE_GGUF_CODEBOOKS_H_

#include <cstdint>

namespace lm {

extern const uint16_t kIq1Codebook[2048];  // of IQ1_S and IQ1_M
extern const uint16_t kIq2XxsCodebook[256];
extern const uint16_t kIq2XsCodebook[512];
extern const uint16_t kIq2SCodebook[1024];
extern const uint16_t kIq3XxsCodebook[256];
extern const uint16_t kIq3SCodebook[512];

}  // namespace lm

#endif  // LM_ENGINE_GGUF_CODEBOOKS_H_
