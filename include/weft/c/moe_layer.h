// Whole layers of experts (weft/moe_layer.hpp).
#pragma once

#include "weft/c/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t weft_layer_schedule;
enum { WEFT_LAYER_PLAIN, WEFT_LAYER_ROUNDS, WEFT_LAYER_COMBINE_ROUNDS, WEFT_LAYER_AUTOMATIC };
const char* weft_layer_schedule_name(weft_layer_schedule schedule);

typedef int32_t weft_expert_gemm_which;
enum { WEFT_GEMM_UP, WEFT_GEMM_DOWN };

// The arguments of a GEMM of the caller; `size` is the library's.
typedef struct weft_expert_gemm {
  size_t size;
  weft_expert_gemm_which which;
  uint32_t round;
  uint32_t first_expert;
  uint32_t experts;
  const void* input;
  const void* input_scales;
  void* output;
  uint32_t input_columns;
  uint32_t output_columns;
  weft_row_layout layout;
  uint32_t capacity;
  const int32_t* counts;
  const int32_t* offsets;
  weft_stream stream;
  int32_t num_sms;
  int32_t reserved;
} weft_expert_gemm;
// Returns WEFT_OK, or another code, with which the layer's call then ends. `context` is the call's.
typedef weft_code (*weft_grouped_gemm)(void* context, const weft_expert_gemm* gemm);

// The arguments of the caller's shared expert; `size` is the library's.
typedef struct weft_shared_expert {
  size_t size;
  const void* input;
  const void* scales;
  const void* residual;
  void* output;
  uint32_t tokens;
  uint32_t hidden;
  weft_stream stream;
  int32_t num_sms;
  int32_t reserved;
} weft_shared_expert;
// As weft_grouped_gemm.
typedef weft_code (*weft_shared_rows)(void* context, const weft_shared_expert* expert);

typedef int32_t weft_layer_part_which;
enum {
  WEFT_PART_DISPATCH,
  WEFT_PART_DISPATCH_SEND,
  WEFT_PART_DISPATCH_WAIT,
  WEFT_PART_UP,
  WEFT_PART_ACTIVATION,
  WEFT_PART_DOWN,
  WEFT_PART_COMBINE,
  WEFT_PART_COMBINE_SEND,
  WEFT_PART_COMBINE_WAIT,
  WEFT_PART_SHARED
};
const char* weft_layer_part_which_name(weft_layer_part_which which);

// A part of a layer's call, of which an observer hears in front of it and behind it; `size` is the library's.
typedef struct weft_layer_part {
  size_t size;
  weft_layer_part_which which;
  uint32_t round;
  weft_flag begins;
  int32_t reserved;
  weft_stream stream;
} weft_layer_part;
typedef void (*weft_layer_observer)(void* context, const weft_layer_part* part);

typedef struct weft_moe_layer_args {
  size_t size;  // to the end of `down_cast` at least
  uint32_t intermediate;
  weft_row_cast down_cast;
} weft_moe_layer_args;
weft_code weft_moe_layer_args_init(weft_moe_layer_args* args, size_t size);

typedef struct weft_moe_layer_call {
  size_t size;
  const void* input;
  const void* scales;
  const void* topk_ids;
  const float* topk_weights;
  const void* residual;
  void* output;
  void* workspace;
  weft_grouped_gemm up;
  weft_grouped_gemm down;
  void* context;  // of both GEMMs, of the shared expert and of the observer; of a recorded call also in its replays
  weft_stream stream;
  const uint32_t* rounds_experts;  // [rounds], or null
  uint32_t rounds;                 // ExpertRounds::count
  uint32_t tokens;
  weft_flag topk_ids_are_i64;
  uint32_t tag;
  weft_layer_schedule schedule;
  int32_t send_num_sms;
  int32_t recv_num_sms;
  int32_t combine_send_num_sms;
  int32_t combine_recv_num_sms;
  int32_t up_num_sms;
  int32_t down_num_sms;
  uint32_t most_tokens;
  weft_layer_observer observe;  // or null
  weft_flag alone_by_size;
  int32_t shared_num_sms;
  weft_shared_rows shared;  // or null
  uint32_t map;
  int32_t cluster;
} weft_moe_layer_call;
weft_code weft_moe_layer_call_init(weft_moe_layer_call* call, size_t size);

typedef struct weft_moe_layer weft_moe_layer;
weft_code weft_moe_layer_create(const weft_exchange* exchange, const weft_moe_layer_args* args, weft_moe_layer** layer);
void weft_moe_layer_destroy(weft_moe_layer* layer);
weft_code weft_moe_layer_workspace_bytes(const weft_moe_layer* layer, size_t* bytes);
weft_code weft_moe_layer_run(const weft_moe_layer* layer, const weft_moe_layer_call* call);
weft_code weft_moe_layer_run_experts(const weft_moe_layer* layer, const weft_moe_layer_call* call);

#ifdef __cplusplus
}
#endif
