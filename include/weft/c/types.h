// Types, enumerations and handles of the C interface (weft/c.h, weft/types.hpp).
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;
struct ncclComm;
typedef struct CUstream_st* weft_stream;  // cudaStream_t, CUstream; null on CPU ranks

// Enumerations have 32 bits whatever the compiler, and the values of C++. A value that is none of them is rejected like
// any other argument outside its range.
typedef int32_t weft_code;  // of weft/c/error.h
typedef int32_t weft_data_type;
enum { WEFT_BF16, WEFT_F16, WEFT_F32, WEFT_I32, WEFT_I64, WEFT_U8 };
typedef int32_t weft_reduce_op;
enum { WEFT_SUM, WEFT_MAX, WEFT_MIN, WEFT_AVG };
typedef int32_t weft_algorithm;
enum {
  WEFT_ALGORITHM_AUTOMATIC,
  WEFT_ALGORITHM_ONE_SHOT,
  WEFT_ALGORITHM_TWO_SHOT,
  WEFT_ALGORITHM_PIPELINED,
  WEFT_ALGORITHM_NCCL,
  WEFT_ALGORITHM_MULTIMEM_ONE_SHOT,
  WEFT_ALGORITHM_MULTIMEM_TWO_SHOT
};
typedef int32_t weft_padding;
enum { WEFT_PADDING_NONE, WEFT_PADDING_ALIGNED, WEFT_PADDING_MAX, WEFT_PADDING_FIXED, WEFT_PADDING_PER_RANK };
typedef int32_t weft_sharding;
enum { WEFT_SHARDING_NONE, WEFT_SHARDING_BALANCED, WEFT_SHARDING_CEIL };
typedef int32_t weft_device;
enum { WEFT_DEVICE_AUTOMATIC, WEFT_DEVICE_CPU, WEFT_DEVICE_CUDA };

typedef int32_t weft_flag;  // 0: no; anything else: yes

typedef struct weft_communicator weft_communicator;
typedef struct weft_group weft_group;
typedef struct weft_exchange weft_exchange;
typedef struct weft_symmetric_memory weft_symmetric_memory;
typedef struct weft_recording weft_recording;

// Bytes of an element; 0 for a value that is no type.
size_t weft_size_of(weft_data_type type);

// Names as messages and tools have them, "bf16" for instance; "unknown" for a value that is none.
const char* weft_data_type_name(weft_data_type type);
const char* weft_reduce_op_name(weft_reduce_op op);
const char* weft_algorithm_name(weft_algorithm algorithm);
const char* weft_padding_name(weft_padding padding);
const char* weft_sharding_name(weft_sharding sharding);
const char* weft_device_name(weft_device device);

// This library's version, "0.1.0".
const char* weft_version(void);

#ifdef __cplusplus
}
#endif
