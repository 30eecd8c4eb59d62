// Crossings between attention groups and all ranks (weft/crossings.hpp).
#pragma once

#include "weft/c/collectives.h"
#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_crossing_args {
  size_t size;
  const void* input;
  void* output;
  size_t width;
  size_t input_stride;
  size_t output_stride;
  size_t group_ranks;
  const weft_counts* counts;  // as in weft_all_gather_v_args
  size_t input_rows;
  size_t output_rows;
  weft_stream stream;
  weft_data_type type;
  uint32_t tag;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_crossing_args;
weft_code weft_crossing_args_init(weft_crossing_args* args, size_t size);
weft_code weft_gather_sums(const weft_group* group, const weft_crossing_args* args);
weft_code weft_scatter_sums(const weft_group* group, const weft_crossing_args* args);

#ifdef __cplusplus
}
#endif
