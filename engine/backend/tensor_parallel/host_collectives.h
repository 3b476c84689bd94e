// Collectives of members whose memory is the host's, and whose ops have finished when they return.
#ifndef LM_ENGINE_BACKEND_TENSOR_PARALLEL_HOST_COLLECTIVES_H_
#define LM_ENGINE_BACKEND_TENSOR_PARALLEL_HOST_COLLECTIVES_H_

#include <memory>

#include "engine/backend/collectives.h"

namespace lm {

std::unique_ptr<Collectives> CreateHostCollectives();

}  // namespace lm

#endif  // LM_ENGINE_BACKEND_TENSOR_PARALLEL_HOST_COLLECTIVES_H_
