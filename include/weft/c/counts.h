// Counts that ranks exchange on the device (weft/counts.hpp).
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// The parts of the output of weft_all_gather_counts, as numbers of the int32 words at which they begin.
typedef struct weft_gathered_counts {
  size_t size;
  size_t groups;
  size_t rows;
  size_t slots;
  size_t offsets;
  size_t most;
  size_t total;
  size_t shards;
  size_t shard_slots;
  size_t any;
  size_t every;
  size_t all;
  size_t words;
} weft_gathered_counts;
// Computes it, on any machine. WEFT_INVALID_ARGUMENT: `group_ranks` is 0.
weft_code weft_gathered_counts_of(size_t ranks, size_t columns, size_t group_ranks, weft_gathered_counts* parts);

typedef struct weft_all_gather_counts_args {
  size_t size;
  const int32_t* input;
  int32_t* output;
  int32_t* host_output;
  size_t columns;
  size_t group_ranks;
  weft_sharding sharding;
  weft_flag split_slots;
  weft_padding padding;
  uint32_t tag;
  size_t slot_rows;
  weft_stream stream;
} weft_all_gather_counts_args;
weft_code weft_all_gather_counts_args_init(weft_all_gather_counts_args* args, size_t size);
weft_code weft_all_gather_counts(const weft_group* group, const weft_all_gather_counts_args* args);

#ifdef __cplusplus
}
#endif
