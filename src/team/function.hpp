// The one annotation that lets a function template run on every executor.
#pragma once

#if defined(__CUDACC__)
#define WEFT_FN __device__ __forceinline__
#define WEFT_SLOW __device__ __noinline__
#else
#define WEFT_FN inline
#define WEFT_SLOW __attribute__((noinline, cold)) inline
#endif
