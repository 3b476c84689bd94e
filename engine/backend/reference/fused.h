// LM_FUSES: before a function that is little but std::fma, which is a call of the C library where a
// processor may have no such instruction. With it the function is there twice, and the processor's
// is found when the program is loaded. The bits are the same.
#ifndef LM_ENGINE_BACKEND_REFERENCE_FUSED_H_
#define LM_ENGINE_BACKEND_REFERENCE_FUSED_H_

// (Sanitizers' own code is not there yet when functions are found.)
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define LM_FUSES __attribute__((target_clones("fma", "default")))
#else
#define LM_FUSES
#endif

#endif  // LM_ENGINE_BACKEND_REFERENCE_FUSED_H_
