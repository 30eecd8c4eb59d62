// Takes one slot's rows out of a tensor that holds all slots (weft/take.hpp).
#pragma once

#include "weft/c/collectives.h"
#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_take_rows_args {
  size_t size;
  const void* input;
  void* output;
  size_t row_bytes;
  size_t input_stride;
  size_t output_stride;
  const weft_counts* counts;  // as in weft_all_gather_v_args
  size_t slots;
  size_t slot;
  size_t shards;
  size_t shard;
  size_t input_rows;
  size_t output_rows;
  weft_flag split_slots;
  weft_stream stream;
} weft_take_rows_args;
weft_code weft_take_rows_args_init(weft_take_rows_args* args, size_t size);
weft_code weft_take_rows(const weft_group* group, const weft_take_rows_args* args);

#ifdef __cplusplus
}
#endif
