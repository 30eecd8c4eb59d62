// All-reduces and crossings with residual and norm (weft/fused.hpp).
#pragma once

#include "weft/c/collectives.h"
#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t weft_fp8_scaling;
enum { WEFT_FP8_FIXED, WEFT_FP8_PER_TOKEN, WEFT_FP8_PER_128_COLUMNS };
typedef int32_t weft_scale_type;
enum { WEFT_SCALE_F32, WEFT_SCALE_UE8M0 };
const char* weft_fp8_scaling_name(weft_fp8_scaling scaling);

typedef struct weft_fp8_output {
  size_t size;  // to the end of `scale_group_stride` at least
  void* rows;
  size_t stride;
  const float* scale;
  void* scales;
  weft_fp8_scaling scaling;
  weft_scale_type scale_type;
  size_t scale_token_stride;
  size_t scale_group_stride;
  float floor;
  weft_flag reserved;  // 0
} weft_fp8_output;
weft_code weft_fp8_output_init(weft_fp8_output* output, size_t size);

typedef struct weft_all_reduce_rms_norm_args {
  size_t size;
  const void* input;
  const void* residual;
  void* residual_output;
  const void* gamma;
  void* output;
  const weft_fp8_output* fp8;  // read in the call, unlike the memory that it names; null: no fp8 is made
  size_t tokens;
  size_t hidden;
  size_t input_stride;
  size_t residual_stride;
  size_t residual_output_stride;
  size_t output_stride;
  weft_data_type type;
  float epsilon;
  weft_flag gamma_plus_one;
  weft_algorithm algorithm;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  weft_flag gamma_f32;
  int32_t cluster;
} weft_all_reduce_rms_norm_args;
weft_code weft_all_reduce_rms_norm_args_init(weft_all_reduce_rms_norm_args* args, size_t size);
weft_code weft_all_reduce_rms_norm(const weft_group* group, const weft_all_reduce_rms_norm_args* args);

// A rank without rows gives `residual`, `output` and `fp8->rows` any address but null, if other ranks have the tensor.
typedef struct weft_crossing_rms_norm_args {
  size_t size;
  const void* input;
  const void* residual;
  void* residual_output;
  const void* gamma;
  void* output;
  const weft_fp8_output* fp8;  // as in weft_all_reduce_rms_norm_args
  size_t hidden;
  size_t input_stride;
  size_t residual_stride;
  size_t residual_output_stride;
  size_t output_stride;
  size_t group_ranks;
  const weft_counts* counts;  // as in weft_all_gather_v_args
  size_t input_rows;
  size_t shard_rows;
  size_t output_rows;
  weft_stream stream;
  weft_data_type type;
  float epsilon;
  weft_flag gamma_plus_one;
  uint32_t tag;
  int32_t blocks;
  int32_t threads;
  weft_flag gamma_f32;
  int32_t cluster;
} weft_crossing_rms_norm_args;
weft_code weft_crossing_rms_norm_args_init(weft_crossing_rms_norm_args* args, size_t size);
weft_code weft_gather_sums_rms_norm(const weft_group* group, const weft_crossing_rms_norm_args* args);
weft_code weft_scatter_sums_rms_norm(const weft_group* group, const weft_crossing_rms_norm_args* args);

#ifdef __cplusplus
}
#endif
