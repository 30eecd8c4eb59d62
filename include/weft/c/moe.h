// Mixture of experts (weft/moe.hpp).
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t weft_row_type;
enum { WEFT_ROW_BF16, WEFT_ROW_F16, WEFT_ROW_FP8 };
typedef int32_t weft_row_cast;
enum { WEFT_CAST_NONE, WEFT_CAST_FP8, WEFT_CAST_FP8_UE8M0, WEFT_CAST_FP8_POW2 };
typedef int32_t weft_row_layout;
enum { WEFT_EXPERT_MASKED, WEFT_EXPERT_CONTIGUOUS, WEFT_RANK_MAJOR, WEFT_RANK_COMPACT };
typedef int32_t weft_scale_order;
enum { WEFT_SCALES_BY_ROWS, WEFT_SCALES_BY_COLUMNS };
typedef int32_t weft_row_path;
enum { WEFT_PATH_AUTOMATIC, WEFT_PATH_SLOTS, WEFT_PATH_RING };
typedef int32_t weft_overflow;
enum { WEFT_OVERFLOW_ERROR, WEFT_OVERFLOW_DROP };
const char* weft_row_layout_name(weft_row_layout layout);
const char* weft_scale_order_name(weft_scale_order order);
const char* weft_row_path_name(weft_row_path path);

enum { WEFT_MOST_PAYLOADS = 4 };

// The ranks that hold one expert.
typedef struct weft_expert_ranks {
  const uint32_t* ranks;  // [count]
  size_t count;
} weft_expert_ranks;

typedef struct weft_moe_exchange_args {
  size_t size;  // to the end of `cast` at least
  uint32_t tokens;
  uint32_t hidden;
  uint32_t experts;
  uint32_t top_k;
  weft_row_type type;
  weft_row_cast cast;
  weft_scale_order scale_order;
  uint32_t scale_bytes;
  weft_data_type combine_type;
  weft_row_layout layout;
  uint32_t alignment;
  uint32_t capacity;
  weft_overflow overflow;
  weft_flag weighted;
  uint32_t handles;
  weft_row_path path;
  uint32_t ring_rows;
  weft_flag weights_at_combine;
  const uint32_t* rank_of_expert;            // [rank_of_expert_count]; the tables are copied
  size_t rank_of_expert_count;               // 0: the empty vector of C++
  const weft_expert_ranks* ranks_of_expert;  // [ranks_of_expert_count]
  size_t ranks_of_expert_count;
  uint32_t slot_tokens;
  uint32_t maps;
  const int32_t* experts_of_rank;  // [experts_of_rank_count]
  size_t experts_of_rank_count;
  weft_flag repeatable;
  int32_t blocks;
  const uint32_t* payload_bytes;  // [payload_bytes_count]
  size_t payload_bytes_count;
} weft_moe_exchange_args;
weft_code weft_moe_exchange_args_init(weft_moe_exchange_args* args, size_t size);

typedef struct weft_moe_exchange_memory {
  size_t size;
  size_t dispatch;
  size_t combine;
  size_t tables;
  size_t window;
  size_t output;
  uint32_t ring_rows;
  uint32_t half_tokens;
} weft_moe_exchange_memory;
weft_code weft_moe_exchange_memory_of(int ranks, const weft_moe_exchange_args* args, weft_moe_exchange_memory* memory);

weft_code weft_exchange_create(const weft_group* group, const weft_moe_exchange_args* args, weft_exchange** exchange);
// Gives the memory back on all ranks; the handle stays, for destroy.
weft_code weft_exchange_free(weft_exchange* exchange);
// Destroys the handle alone: the memory stays taken, as in C++.
void weft_exchange_destroy(weft_exchange* exchange);

// The exchange's definition. Its tables belong to the exchange and stay as long as this handle.
weft_code weft_exchange_args(const weft_exchange* exchange, weft_moe_exchange_args* args);
weft_code weft_exchange_local_experts(const weft_exchange* exchange, uint32_t* count);
// `experts_of_rank`: [count], from map `first_map` on.
weft_code weft_exchange_set_experts(weft_exchange* exchange, const int32_t* experts_of_rank, size_t count,
                                    uint32_t first_map, weft_stream stream);
// `experts`: [maps, local experts]. They belong to the exchange and stay as long as this handle, set_experts changes
// them in place.
weft_code weft_exchange_experts(const weft_exchange* exchange, const uint32_t** experts);
weft_code weft_exchange_capacity(const weft_exchange* exchange, uint32_t* rows);
weft_code weft_exchange_output_rows(const weft_exchange* exchange, size_t* rows);

// ------------------------------------------------------------------------------------------- dispatch and combine

typedef struct weft_dispatch_handle {
  uint32_t slot;  // and above its lower 16 bits most_tokens of C++
  uint32_t tokens;
  uint64_t exchange;
  uint64_t number;
} weft_dispatch_handle;

typedef struct weft_dispatch_args {
  size_t size;
  const void* input;
  const void* scales;
  const void* topk_ids;
  const float* topk_weights;
  void* output;
  void* output_scales;
  int32_t* counts;
  int32_t* offsets;
  int32_t* output_sources;
  int32_t* source_tokens;
  uint64_t* source_wait_ns;
  uint64_t* host_counts;
  int32_t* output_ids;
  float* output_weights;
  uint32_t tokens;
  weft_flag topk_ids_are_i64;
  weft_flag discard;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  const uint32_t* rounds_experts;  // [rounds], or null
  uint32_t rounds;                 // ExpertRounds::count
  uint32_t round;
  uint32_t most_tokens;
  uint32_t map;
  const uint8_t* rank_mask;
  int32_t* mask_ids;
  int32_t* rank_prefix;
  weft_dispatch_handle again;  // zeros: none
  const void* payloads[WEFT_MOST_PAYLOADS];
  void* output_payloads[WEFT_MOST_PAYLOADS];
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_dispatch_args;
weft_code weft_dispatch_args_init(weft_dispatch_args* args, size_t size);

typedef struct weft_combine_args {
  size_t size;
  weft_dispatch_handle handle;
  const void* input;
  const void* residual;
  void* output;
  uint64_t* source_wait_ns;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  const float* topk_weights;
  const uint32_t* rounds_experts;  // [rounds], or null
  uint32_t rounds;                 // ExpertRounds::count
  uint32_t round;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_combine_args;
weft_code weft_combine_args_init(weft_combine_args* args, size_t size);

// `handle` gets the name that combine needs.
weft_code weft_dispatch(const weft_exchange* exchange, const weft_dispatch_args* args, weft_dispatch_handle* handle);
weft_code weft_combine(const weft_exchange* exchange, const weft_combine_args* args);
// The halves. In rounds a dispatch has a wait for each round, and a combine a send.
weft_code weft_dispatch_send(const weft_exchange* exchange, const weft_dispatch_args* args,
                             weft_dispatch_handle* handle);
weft_code weft_dispatch_wait(const weft_exchange* exchange, const weft_dispatch_handle* handle,
                             const weft_dispatch_args* args);
weft_code weft_combine_send(const weft_exchange* exchange, const weft_combine_args* args);
weft_code weft_combine_wait(const weft_exchange* exchange, const weft_combine_args* args);

// As weft_group_refuse.
void weft_exchange_refuse_dispatch(const weft_exchange* exchange, const char* reason, weft_stream stream);
void weft_exchange_refuse_combine(const weft_exchange* exchange, const char* reason, weft_stream stream);

typedef struct weft_host_count {
  uint32_t count;
  uint32_t stamp;
} weft_host_count;
// `word`: of weft_dispatch_args::host_counts, and not null.
weft_host_count weft_read_host_count(uint64_t* word);

#ifdef __cplusplus
}
#endif
