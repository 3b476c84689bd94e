// The host's thread may round up, flush what is small to zero, or trap: what is computed, and read
// as a number, must not depend on that.
//
//   const DefaultRounding rounding;  // until the end of the block
#ifndef LM_ENGINE_BASE_DEFAULT_ROUNDING_H_
#define LM_ENGINE_BASE_DEFAULT_ROUNDING_H_

#include <cfenv>

#include "engine/base/processor.h"

namespace lm {

// Some nanoseconds where the thread rounds as most do, else most of a microsecond.
class DefaultRounding {
 public:
  DefaultRounding() : changes_(!RoundsByDefault()) {
    if (!changes_) return;
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() {
    if (changes_) std::fesetenv(&before_);
  }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  const bool changes_;
  std::fenv_t before_;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_DEFAULT_ROUNDING_H_
