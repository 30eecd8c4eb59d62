// All-reduce, reduce, gathers, scatters, broadcast and barrier (weft/collectives.hpp).
//
// `blocks`, `threads` and `cluster` are the fields of weft::Launch. Tensors of GPUs are in device memory, those of CPU
// ranks in any memory.
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_all_reduce_args {
  size_t size;
  const void* input;
  void* output;
  size_t count;
  weft_data_type type;
  weft_reduce_op op;
  weft_algorithm algorithm;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_all_reduce_args;
weft_code weft_all_reduce_args_init(weft_all_reduce_args* args, size_t size);
weft_code weft_all_reduce(const weft_group* group, const weft_all_reduce_args* args);

typedef struct weft_reduce_args {
  size_t size;
  const void* input;
  void* output;
  size_t count;
  weft_data_type type;
  weft_reduce_op op;
  int32_t root;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_reduce_args;
weft_code weft_reduce_args_init(weft_reduce_args* args, size_t size);
weft_code weft_reduce(const weft_group* group, const weft_reduce_args* args);

typedef struct weft_all_gather_args {
  size_t size;
  const void* input;
  void* output;
  size_t rows;
  size_t row_bytes;
  size_t input_stride;
  size_t output_stride;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_all_gather_args;
weft_code weft_all_gather_args_init(weft_all_gather_args* args, size_t size);
weft_code weft_all_gather_into_tensor(const weft_group* group, const weft_all_gather_args* args);

typedef struct weft_all_to_all_args {
  size_t size;
  const void* input;
  void* output;
  size_t rows;
  size_t row_bytes;
  size_t input_stride;
  size_t output_stride;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_all_to_all_args;
weft_code weft_all_to_all_args_init(weft_all_to_all_args* args, size_t size);
weft_code weft_all_to_all(const weft_group* group, const weft_all_to_all_args* args);

typedef struct weft_broadcast_args {
  size_t size;
  const void* input;
  void* output;
  size_t rows;
  size_t row_bytes;
  size_t input_stride;
  size_t output_stride;
  int32_t root;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_broadcast_args;
weft_code weft_broadcast_args_init(weft_broadcast_args* args, size_t size);
weft_code weft_broadcast(const weft_group* group, const weft_broadcast_args* args);

typedef struct weft_reduce_scatter_args {
  size_t size;
  const void* input;
  void* output;
  size_t rows;
  size_t width;
  size_t input_stride;
  size_t output_stride;
  weft_data_type type;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  weft_reduce_op op;
  int32_t cluster;
} weft_reduce_scatter_args;
weft_code weft_reduce_scatter_args_init(weft_reduce_scatter_args* args, size_t size);
weft_code weft_reduce_scatter_tensor(const weft_group* group, const weft_reduce_scatter_args* args);

typedef struct weft_barrier_args {
  size_t size;
  uint32_t tag;
  weft_stream stream;
} weft_barrier_args;
weft_code weft_barrier_args_init(weft_barrier_args* args, size_t size);
weft_code weft_barrier(const weft_group* group, const weft_barrier_args* args);

// ---------------------------------------------------------------------------------------------------- ragged forms

typedef struct weft_counts {
  size_t size;  // to the end of `slots` at least
  const int32_t* rows;
  weft_sharding sharding;
  weft_padding padding;
  size_t slot_rows;
  const int32_t* slots;
  weft_flag on_host;
  weft_flag reserved;  // 0
} weft_counts;
weft_code weft_counts_init(weft_counts* counts, size_t size);

typedef struct weft_gathered_tensor {
  size_t size;  // to the end of `output_stride` at least
  const void* input;
  void* output;
  size_t row_bytes;
  size_t input_stride;
  size_t output_stride;
} weft_gathered_tensor;
weft_code weft_gathered_tensor_init(weft_gathered_tensor* tensor, size_t size);

typedef struct weft_all_gather_v_args {
  size_t size;
  const weft_gathered_tensor* tensors;  // [tensor_count], all of the first one's `size`
  size_t tensor_count;
  const weft_counts* counts;  // read in the call, unlike the numbers that it names; null: no rows, which is rejected
  size_t input_rows;
  size_t output_rows;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  size_t group_ranks;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_all_gather_v_args;
weft_code weft_all_gather_v_args_init(weft_all_gather_v_args* args, size_t size);
weft_code weft_all_gather_v(const weft_group* group, const weft_all_gather_v_args* args);

typedef struct weft_reduce_scatter_v_args {
  size_t size;
  const void* input;
  void* output;
  size_t width;
  size_t input_stride;
  size_t output_stride;
  const weft_counts* counts;  // as in weft_all_gather_v_args
  size_t input_rows;
  size_t output_rows;
  weft_data_type type;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  weft_reduce_op op;
  int32_t cluster;
} weft_reduce_scatter_v_args;
weft_code weft_reduce_scatter_v_args_init(weft_reduce_scatter_v_args* args, size_t size);
weft_code weft_reduce_scatter_v(const weft_group* group, const weft_reduce_scatter_v_args* args);

#ifdef __cplusplus
}
#endif
