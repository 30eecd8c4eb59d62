// Weft's C interface: C99, and C++ too. Every function here is one of the C++ interface, and its contract is there.
//
// Headers have the same names as those of C++: weft/c/fused.h has the functions of weft/fused.hpp. Names differ by a
// prefix alone: weft::all_reduce is weft_all_reduce, and its arguments are fields of the same names. So shapes, types,
// units, alignment, streams, graphs, errors, threads and ownership of tensors are those of the C++ header. These
// headers say what C adds.
//
// Codes. A function returns WEFT_OK, or the code of the error (weft/c/error.h) whose record and words the thread then
// has. Nothing is ever thrown through the interface. If a function fails, it has written none of its results.
//
// Structs. A struct of arguments or results begins with `size`, its length in bytes as the caller's header has it.
// Later versions of Weft add fields at the end. For arguments, init writes `size` and the defaults, which are those of
// C++:
//
//   weft_all_reduce_args args;
//   weft_all_reduce_args_init(&args, sizeof args);
//
// A caller with an older header gives a smaller `size`: fields behind it take their defaults. WEFT_INVALID_ARGUMENT: a
// `size` that is larger than this library's, as the header is newer. Also one that is too small: arguments reach at
// least to the end of `stream`, others as far as their comment says. Init's own error may be ignored, as the call
// refuses the same `size`. In a struct for results, the caller writes `size` alone, and gets that much of it. Five
// small structs have no `size` and never change: weft_unique_id, weft_dispatch_handle, weft_host_count,
// weft_row_range and weft_expert_ranks.
//
// Handles. A handle is made by one function and given back by its destroy, in any order and by any thread: what a
// handle needs lives until the last one is gone. Destroy of a null handle does nothing. A handle must not be destroyed
// while another thread uses it, nor used afterwards. A null handle elsewhere is WEFT_INVALID_ARGUMENT.
//
// Texts are UTF-8 and end with a zero. Functions that return one in a buffer write as much of it as `capacity` bytes
// have room for, the zero included. `length` gets the bytes of the whole text without the zero; it may be null. So may
// be `text`, if `capacity` is 0.
#pragma once

#include "weft/c/collectives.h"
#include "weft/c/columns.h"
#include "weft/c/communicator.h"
#include "weft/c/counts.h"
#include "weft/c/crossings.h"
#include "weft/c/error.h"
#include "weft/c/fused.h"
#include "weft/c/messages.h"
#include "weft/c/moe.h"
#include "weft/c/moe_layer.h"
#include "weft/c/parallel.h"
#include "weft/c/recording.h"
#include "weft/c/symmetric.h"
#include "weft/c/take.h"
#include "weft/c/top_k.h"
#include "weft/c/types.h"
