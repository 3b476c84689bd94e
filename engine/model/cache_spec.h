// CacheSpec: what a model remembers of a sequence, in classes of layers that are alike.
//
//   class 0          keys and values of the layers that see everything (where there are none its
//                    blocks are empty, and only numbers: for 8 million tokens at most)
//   windowed classes those of the layers that see a window, by its length; they give blocks back
//                    once no token can see them any more
//                    of the layers of an encoder all have the same memory, one after the other
//   states           what recurrent layers keep: of fixed size, one slot a sequence
//
// One budget holds all of it. Recurrent models get half of it for states, at most one for each
// sequence that may run and kSnapshots more. Of the rest each class has as many blocks as the
// others, except that a windowed one has no more than the windows of all sequences.
#ifndef LM_ENGINE_MODEL_CACHE_SPEC_H_
#define LM_ENGINE_MODEL_CACHE_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/model/language_model.h"
#include "engine/model/model_spec.h"

namespace lm {

struct CacheSpec {
  std::vector<int32_t> class_of;  // of each layer; -1: it has no keys and values
  DType dtype = DType::kF16;
  CacheShape shape;  // how much there is of it
};

// The keys and values of an attention layer, without where they lie.
KvLayer KvLayerOf(const AttentionSpec& attention, DType dtype);

// The same of rows that are both: those of a window's tokens, and the pooled ones, which the full
// class has; without values where there are none.
RowLayer NearRowsOf(const AttentionSpec& attention);
RowLayer PooledRowsOf(const AttentionSpec& attention);
RowLayer IndexRowsOf(const AttentionSpec& attention);

// Bytes of a block of the layer's own class, and of the full one beside it.
struct BlockBytes {
  int64_t own = 0;
  int64_t full = 0;
};
BlockBytes BlockBytesOf(const AttentionSpec& attention, DType dtype);

// What the numbers of KV heads of the layers [first, end) of each class are multiples of, as
// Backend::AllocateKv wants it: 1 where something else lies in their blocks, too.
std::vector<int32_t> CommonKvHeads(const ModelSpec& spec, const CacheSpec& cache, int64_t first,
                                   int64_t end);

// The type of a model's keys and values where `asked` is asked for, which KvTypeOn has let pass:
// rows that are both are F32. Encoders keep none, and have what their attention is fast in: where a
// GPU has some of the layers F16, unless F32 is asked for; on CPUs kI16 if it is asked for, or F32.
DType KvTypeOf(const ModelSpec& spec, bool on_gpu, DType asked);

// For `bytes`, keys and values as `dtype`. InvalidArgument, with both
// numbers, where that is less than the least that a sequence needs.
absl::StatusOr<CacheSpec> PlanCache(const ModelSpec& spec, int64_t bytes, DType dtype);

// The least there is: a block of each class, and a state.
CacheSpec SmallestCache(const ModelSpec& spec, DType dtype);

// Where the layers [first, end) keep what they remember.
struct CacheRoom {
  int64_t first = 0;
  int64_t end = 0;
  int64_t free_bytes = 0;  // of each device's memory; -1: it is the host's
  // That share the KV heads where these come out even. One may have several rooms.
  std::vector<std::string> devices;
};

// As many bytes as leave half of what is free, and no more than DefaultCacheBytes() of the host's,
// whose memory is one whatever computes there: the default. ResourceExhausted, with the numbers,
// where that is too little.
absl::StatusOr<CacheSpec> PlanCacheIn(const ModelSpec& spec, absl::Span<const CacheRoom> rooms,
                                      DType dtype);

// 2 GiB, or an eighth of the machine's memory where that is less.
int64_t DefaultCacheBytes();

}  // namespace lm

#endif  // LM_ENGINE_MODEL_CACHE_SPEC_H_
