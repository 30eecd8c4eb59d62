// Communicators, groups and ids (weft/communicator.hpp).
#pragma once

#include "weft/c/error.h"
#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_config {
  size_t size;  // to the end of `rendezvous_deadline_ns` at least
  weft_device device;
  int32_t cuda_device;
  int64_t deadline_ns;  // nanoseconds; 0: for ever
  int64_t rendezvous_deadline_ns;
  size_t one_shot_bytes;
  size_t two_shot_bytes;
  size_t group_one_shot_bytes;
  size_t group_two_shot_bytes;
  int32_t max_groups;
  weft_flag multicast;
  const char* tuning_file;  // null: empty; this and `name` are copied
  const char* name;
  weft_flag small_buffers;
  weft_flag order_streams;
} weft_config;
weft_code weft_config_init(weft_config* config, size_t size);

weft_code weft_use_nccl(const char* file);

typedef struct weft_unique_id {
  uint8_t bytes[128];
} weft_unique_id;
// `host`: null stands for 127.0.0.1.
weft_code weft_unique_id_create(const char* host, weft_unique_id* id);

// -------------------------------------------------------------------------------------------------- communicators
//
// `config`: null stands for the defaults, here and below.
weft_code weft_communicator_from_environment(const weft_config* config, weft_communicator** communicator);
weft_code weft_communicator_from_id(const weft_unique_id* id, int rank, int world_size, const weft_config* config,
                                    weft_communicator** communicator);
weft_code weft_communicator_from_nccl(struct ncclComm* nccl, const weft_config* config,
                                      weft_communicator** communicator);
// `communicators` has room for `world_size` handles.
weft_code weft_communicator_local(int world_size, const weft_config* config, weft_communicator** communicators);
// The communicator itself is destroyed with the last handle of anything that was made with it: groups, exchanges,
// symmetric memory, recordings. It then waits for this rank's calls on the GPU.
void weft_communicator_destroy(weft_communicator* communicator);

// A handle of the group of all ranks, for the caller to destroy. Rank, size, status and whatever else a group has are
// asked there.
weft_code weft_communicator_world(const weft_communicator* communicator, weft_group** world);
// Color −1 gives a null handle.
weft_code weft_communicator_split(weft_communicator* communicator, int color, weft_group** group);
weft_code weft_communicator_release(weft_communicator* communicator);
weft_code weft_communicator_acquire(weft_communicator* communicator);
weft_code weft_communicator_abort(weft_communicator* communicator);

typedef struct weft_memory_use {
  size_t size;
  size_t window;
  size_t control;
} weft_memory_use;
weft_code weft_communicator_memory(const weft_communicator* communicator, weft_memory_use* memory);
weft_code weft_communicator_fabric(const weft_communicator* communicator, char* text, size_t capacity, size_t* length);
weft_code weft_communicator_multicast(const weft_communicator* communicator, char* text, size_t capacity,
                                      size_t* length);

// --------------------------------------------------------------------------------------------------------- groups
//
// Another handle of the same group.
weft_code weft_group_copy(const weft_group* group, weft_group** copy);
void weft_group_destroy(weft_group* group);

weft_code weft_group_rank(const weft_group* group, int* rank);
weft_code weft_group_size(const weft_group* group, int* size);
// `members`: [size] world ranks, ascending. They belong to the group and stay as long as this handle.
weft_code weft_group_members(const weft_group* group, const int** members);
weft_code weft_group_device(const weft_group* group, weft_device* device);
weft_code weft_group_tuning(const weft_group* group, char* text, size_t capacity, size_t* length);

// `fault`: null while all is well. Else a record that stays until this thread's next call of this function. The
// function itself fails if it cannot tell; a fault of the group is no failure of it.
weft_code weft_group_status(const weft_group* group, const weft_fault** fault);
// Fails with the fault's code if there is one. weft_last_message() then ends with the flight recorder.
weft_code weft_group_check(const weft_group* group);

// The library writes it, and a newer one may write more fields than the caller's header has.
typedef struct weft_call_record {
  size_t size;
  uint64_t number;
  int64_t time_ns;  // since 1970, UTC
  const char* operation;
} weft_call_record;
// `records`: [count] of addresses of records, the oldest first. They stay until this thread's next call of this
// function.
weft_code weft_group_recent_calls(const weft_group* group, const weft_call_record* const** records, size_t* count);

// `reason` ends with a zero. A null handle or reason: nothing is told.
void weft_group_refuse(const weft_group* group, const char* reason, weft_stream stream);
weft_code weft_group_cuda_device(const weft_group* group, int* device);

#ifdef __cplusplus
}
#endif
