// Annotations that let a function template run on every executor. They are macros, because no language construct can be
// an attribute or a pragma.
#pragma once

#if defined(__CUDACC__)
#define WEFT_FN __device__ __forceinline__
#define WEFT_SLOW __device__ __noinline__
#define WEFT_UNROLL _Pragma("unroll")
#define WEFT_NO_UNROLL _Pragma("unroll 1")  // cold loops: the code of a kernel is read from memory, too
#elif defined(__clang__)
#define WEFT_FN inline
#define WEFT_SLOW __attribute__((noinline, cold)) inline
#define WEFT_UNROLL _Pragma("unroll")
#define WEFT_NO_UNROLL
#else
#define WEFT_FN inline
#define WEFT_SLOW __attribute__((noinline, cold)) inline
#define WEFT_UNROLL _Pragma("GCC unroll 8")
#define WEFT_NO_UNROLL
#endif

// The simulator and the sanitizers compile faster without unrolled loops, and their speed does not count.
#if defined(WEFT_KEEPS_LOOPS)
#undef WEFT_UNROLL
#define WEFT_UNROLL
#endif
