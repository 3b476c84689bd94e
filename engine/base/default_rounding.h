// The host's thread may round up, flush what is small to zero, or trap: what is computed, and read
// as a number, must not depend on that.
//
//   const DefaultRounding rounding;  // until the end of the block
#ifndef LM_ENGINE_BASE_DEFAULT_ROUNDING_H_
#define LM_ENGINE_BASE_DEFAULT_ROUNDING_H_

#include <cfenv>

namespace lm {

class DefaultRounding {
 public:
  DefaultRounding() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultRounding() { std::fesetenv(&before_); }
  DefaultRounding(const DefaultRounding&) = delete;
  DefaultRounding& operator=(const DefaultRounding&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace lm

#endif  // LM_ENGINE_BASE_DEFAULT_ROUNDING_H_
