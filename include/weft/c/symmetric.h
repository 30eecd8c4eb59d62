// Symmetric memory (weft/symmetric.hpp).
#pragma once

#include "weft/c/types.h"

#ifdef __cplusplus
extern "C" {
#endif

weft_code weft_symmetric_memory_allocate(const weft_communicator* communicator, size_t bytes,
                                         weft_symmetric_memory** memory);
// Gives the memory back on all ranks; the handle stays, for destroy.
weft_code weft_symmetric_memory_free(weft_symmetric_memory* memory);
// Destroys the handle alone: the memory stays taken, as in C++.
void weft_symmetric_memory_destroy(weft_symmetric_memory* memory);

weft_code weft_symmetric_memory_data(const weft_symmetric_memory* memory, void** data);
weft_code weft_symmetric_memory_bytes(const weft_symmetric_memory* memory, size_t* bytes);
// `data`: null if this rank cannot reach the part of world rank `rank`.
weft_code weft_symmetric_memory_peer(const weft_symmetric_memory* memory, int rank, void** data);

#ifdef __cplusplus
}
#endif
