// Groups of ranks, and the places of their rows, on the host (weft/parallel.hpp).
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_parallel_layout {
  size_t size;  // all of it
  int32_t tp;
  int32_t dp;
  int32_t ep;
  int32_t moe_dense_tp;
} weft_parallel_layout;
weft_code weft_parallel_layout_init(weft_parallel_layout* layout, size_t size);
weft_code weft_parallel_layout_check(const weft_parallel_layout* layout);

// The numbers of a rank: what the functions of weft::ParallelLayout with these names return.
typedef struct weft_parallel_place {
  size_t size;
  int32_t attn_tp;
  int32_t attn_dp_rank;
  int32_t attn_tp_rank;
  int32_t moe_tp;
  int32_t moe_ep_rank;
  int32_t moe_tp_rank;
  int32_t dense_tp;
  int32_t attn_tp_color;
  int32_t attn_dp_color;
  int32_t moe_tp_color;
  int32_t moe_ep_color;
  int32_t dense_tp_color;
} weft_parallel_place;
weft_code weft_parallel_place_of(const weft_parallel_layout* layout, int rank, weft_parallel_place* place);

typedef int32_t weft_parallel_group;
enum { WEFT_GROUP_ATTN_TP, WEFT_GROUP_ATTN_DP, WEFT_GROUP_MOE_TP, WEFT_GROUP_MOE_EP, WEFT_GROUP_DENSE_TP };
// `count` gets the number of ranks in the group. `members` gets them, ascending, as far as `capacity` numbers have
// room.
weft_code weft_parallel_group_of(const weft_parallel_layout* layout, weft_parallel_group kind, int rank, int* members,
                                 size_t capacity, size_t* count);

typedef struct weft_row_range {
  size_t begin;
  size_t end;
} weft_row_range;
weft_code weft_shard_of(size_t rows, int parts, int part, weft_sharding sharding, weft_row_range* range);
weft_code weft_slot_rows_of(size_t rows, weft_padding kind, size_t slot_rows, size_t* result);
// `rows` and `ranges`: [ranks].
weft_code weft_slots_of(const int32_t* rows, size_t ranks, weft_padding kind, size_t slot_rows, weft_row_range* ranges);
// The same for slots of `slot_rows`, [ranks].
weft_code weft_slots_of_each(const int32_t* rows, const int32_t* slot_rows, size_t ranks, weft_row_range* ranges);
// `group_rows`: [groups] of the layout's attention groups; `counts`: [tp].
weft_code weft_shard_counts(const weft_parallel_layout* layout, const int32_t* group_rows, size_t groups,
                            weft_sharding sharding, size_t slot_rows, int32_t* counts);
// The same with a slot of its own length for every group, `slot_rows`: [groups].
weft_code weft_shard_counts_of_each(const weft_parallel_layout* layout, const int32_t* group_rows,
                                    const int32_t* slot_rows, size_t groups, weft_sharding sharding, int32_t* counts);

#ifdef __cplusplus
}
#endif
