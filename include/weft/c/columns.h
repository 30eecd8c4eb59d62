// Columns of all ranks side by side (weft/columns.hpp).
#pragma once

#include "weft/c/collectives.h"
#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_all_gather_columns_args {
  size_t size;
  const void* input;
  void* output;
  size_t rows;
  size_t shard_columns;
  size_t columns;
  size_t input_stride;
  size_t output_stride;
  weft_data_type type;
  weft_flag output_f32;
  float scale;
  float soft_cap;
  weft_stream stream;
  uint32_t tag;
  int32_t blocks;
  int32_t threads;
  weft_flag even_shards;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_all_gather_columns_args;
weft_code weft_all_gather_columns_args_init(weft_all_gather_columns_args* args, size_t size);
weft_code weft_all_gather_columns(const weft_group* group, const weft_all_gather_columns_args* args);

typedef struct weft_all_to_all_columns_args {
  size_t size;
  const void* input;
  void* output;
  size_t shard_columns;
  size_t columns;
  size_t input_stride;
  size_t output_stride;
  weft_data_type type;
  weft_flag output_f32;
  float scale;
  float soft_cap;
  size_t group_ranks;
  const weft_counts* counts;  // of groups, else as in weft_all_gather_v_args
  size_t input_rows;
  size_t output_rows;
  weft_stream stream;
  uint32_t tag;
  int32_t blocks;
  int32_t threads;
  weft_flag even_shards;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_all_to_all_columns_args;
weft_code weft_all_to_all_columns_args_init(weft_all_to_all_columns_args* args, size_t size);
weft_code weft_all_to_all_columns(const weft_group* group, const weft_all_to_all_columns_args* args);

#ifdef __cplusplus
}
#endif
