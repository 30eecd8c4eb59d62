// Messages between two ranks, and the gather and scatter of one root (weft/messages.hpp).
//
// weft_send and weft_receive are functions, so the structs of C++ with these names have longer ones here.
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weft_outgoing_message {
  size_t size;  // to the end of `tag` at least
  const void* data;
  size_t bytes;
  int32_t peer;
  uint32_t tag;
} weft_outgoing_message;
weft_code weft_outgoing_message_init(weft_outgoing_message* message, size_t size);

typedef struct weft_incoming_message {
  size_t size;  // to the end of `tag` at least
  void* data;
  size_t bytes;
  int32_t peer;
  uint32_t tag;
} weft_incoming_message;
weft_code weft_incoming_message_init(weft_incoming_message* message, size_t size);

typedef struct weft_send_receive_args {
  size_t size;
  const weft_outgoing_message* sends;  // [send_count], all of the first one's `size`
  size_t send_count;
  const weft_incoming_message* receives;  // [receive_count], likewise
  size_t receive_count;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_send_receive_args;
weft_code weft_send_receive_args_init(weft_send_receive_args* args, size_t size);
weft_code weft_send_receive(const weft_group* group, const weft_send_receive_args* args);

weft_code weft_send(const weft_group* group, const weft_outgoing_message* message, weft_stream stream);
weft_code weft_receive(const weft_group* group, const weft_incoming_message* message, weft_stream stream);

typedef struct weft_gather_args {
  size_t size;
  const void* input;
  void* output;
  size_t bytes;
  int32_t root;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_gather_args;
weft_code weft_gather_args_init(weft_gather_args* args, size_t size);
weft_code weft_gather(const weft_group* group, const weft_gather_args* args);

typedef struct weft_scatter_args {
  size_t size;
  const void* input;
  void* output;
  size_t bytes;
  int32_t root;
  uint32_t tag;
  weft_stream stream;
  int32_t blocks;
  int32_t threads;
  int32_t cluster;
  weft_flag reserved;  // 0
} weft_scatter_args;
weft_code weft_scatter_args_init(weft_scatter_args* args, size_t size);
weft_code weft_scatter(const weft_group* group, const weft_scatter_args* args);

#ifdef __cplusplus
}
#endif
