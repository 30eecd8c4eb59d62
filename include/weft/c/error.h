// Codes, and what a thread can ask after a function has failed (weft/error.hpp).
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// weft::Errc has their meanings. An exception that is not Weft's own, such as one for lack of memory, is WEFT_SYSTEM.
enum {
  WEFT_OK,
  WEFT_INVALID_ARGUMENT,
  WEFT_TIMEOUT,
  WEFT_MISMATCH,
  WEFT_PEER_DIED,
  WEFT_PEER_FAILED,
  WEFT_ABORTED,
  WEFT_OVERLAP,
  WEFT_RELEASED,
  WEFT_RENDEZVOUS,
  WEFT_UNSUPPORTED,
  WEFT_SYSTEM,
  WEFT_IN_FLIGHT,
  WEFT_OVERFLOW,
  WEFT_CAPACITY
};

// "invalid argument" for instance; "unknown" for a value that is no code.
const char* weft_code_name(weft_code code);

// The record of a failed call: weft::Fault. The library writes it, and a newer one may write more fields than the
// caller's header has.
typedef struct weft_fault {
  size_t size;
  weft_code code;
  int32_t rank;
  int32_t peer;
  int32_t reporter;
  weft_code reported;
  uint32_t epoch_wanted;
  uint32_t epoch_seen;
  const char* operation;  // these are never null
  const char* theirs;
  const char* reason;
} weft_fault;

// The last failure of a function that this thread called: its record, and its words (what() of C++). Before the first
// one: WEFT_OK and an empty text. Successes leave both as they are. They belong to the library, and stay until the next
// failure in this thread, or the thread's end.
const weft_fault* weft_last_fault(void);
const char* weft_last_message(void);

#ifdef __cplusplus
}
#endif
