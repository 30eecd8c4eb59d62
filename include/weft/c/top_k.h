// The largest numbers of rows whose columns lie on several ranks (weft/top_k.hpp).
#pragma once

#include "weft/c/collectives.h"
#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_top_k_columns_args {
  size_t size;
  const void* input;
  void* values;
  int32_t* indices;
  size_t rows;
  size_t k;
  size_t shard_columns;
  size_t columns;
  size_t input_stride;
  weft_data_type type;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  weft_flag even_shards;
  int32_t cluster;
} weft_top_k_columns_args;
weft_code weft_top_k_columns_args_init(weft_top_k_columns_args* args, size_t size);
weft_code weft_top_k_columns(const weft_group* group, const weft_top_k_columns_args* args);

#ifdef __cplusplus
}
#endif
