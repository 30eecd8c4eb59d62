// Recorded calls of CPU ranks (weft/recording.hpp).
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

// Keeps the calls that `calls(user)` makes in this thread. If it does not return WEFT_OK, nothing is kept, and that is
// the code of this function. It must not throw, nor leave by longjmp. A layer's functions and their context (see
// weft/c/moe_layer.h) are in use as long as the recording.
weft_code weft_recording_capture(const weft_communicator* communicator, weft_code (*calls)(void* user), void* user,
                                 weft_recording** recording);
void weft_recording_destroy(weft_recording* recording);

weft_code weft_recording_replay(const weft_recording* recording);
weft_code weft_recording_size(const weft_recording* recording, size_t* calls);

#ifdef __cplusplus
}
#endif
