#include "engine/backend/cuda/cublas_lt.h"

#include <dlfcn.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace lm {
namespace {

template <typename Function>
bool Resolve(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool ResolveAll(void* library, CublasLt* lt) {
  return Resolve(library, "cublasLtCreate", &lt->Create) &&
         Resolve(library, "cublasLtDestroy", &lt->Destroy) &&
         Resolve(library, "cublasLtMatmul", &lt->Matmul) &&
         Resolve(library, "cublasLtMatmulAlgoGetHeuristic", &lt->MatmulAlgoGetHeuristic) &&
         Resolve(library, "cublasLtMatmulDescCreate", &lt->MatmulDescCreate) &&
         Resolve(library, "cublasLtMatmulDescSetAttribute", &lt->MatmulDescSetAttribute) &&
         Resolve(library, "cublasLtMatmulDescDestroy", &lt->MatmulDescDestroy) &&
         Resolve(library, "cublasLtMatrixLayoutCreate", &lt->MatrixLayoutCreate) &&
         Resolve(library, "cublasLtMatrixLayoutDestroy", &lt->MatrixLayoutDestroy) &&
         Resolve(library, "cublasLtMatmulPreferenceCreate", &lt->MatmulPreferenceCreate) &&
         Resolve(library, "cublasLtMatmulPreferenceSetAttribute",
                 &lt->MatmulPreferenceSetAttribute) &&
         Resolve(library, "cublasLtMatmulPreferenceDestroy", &lt->MatmulPreferenceDestroy);
}

}  // namespace

absl::Span<const char* const> CublasLt::Names() {
  // The second pair is where the toolkit's installer puts it, which is not always searched.
  static constexpr const char* kNames[] = {
      "libcublasLt.so.13",
      "libcublasLt.so.12",
      "/usr/local/cuda/lib64/libcublasLt.so.13",
      "/usr/local/cuda/lib64/libcublasLt.so.12",
  };
  return kNames;
}

absl::StatusOr<CublasLt> CublasLt::Open(absl::Span<const char* const> names) {
  std::string reasons;
  for (const char* name : names) {
    void* library = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    CublasLt lt = {};
    if (library != nullptr && ResolveAll(library, &lt)) return lt;
    const char* error = dlerror();
    absl::StrAppend(&reasons, "; ", error != nullptr ? error : name);
    if (library != nullptr) dlclose(library);
  }
  return absl::NotFoundError(absl::StrCat("no cuBLASLt", reasons));
}

}  // namespace lm
