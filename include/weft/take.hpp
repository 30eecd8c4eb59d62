// Takes one slot's rows out of a tensor that holds all slots.
#pragma once

#include <cstddef>

#include "weft/collectives.hpp"
#include "weft/communicator.hpp"
#include "weft/types.hpp"

namespace weft {

inline constexpr std::size_t kMaxTakenSlots = 72;

struct TakeRowsArgs {
  const void* input = nullptr;  // all slots, one behind the other, as all_gather_v leaves them; pads are not read
  void* output = nullptr;       // `output_rows` rows, apart from the input
  std::size_t row_bytes = 0;
  std::size_t input_stride = 0, output_stride = 0;  // bytes from row to row; 0: row_bytes
  Counts counts = {};                 // `rows`, `slots`: [slots]. `sharding`: how shards share a slot's rows
  std::size_t slots = 1;              // 1 … kMaxTakenSlots
  std::size_t slot = 0;               // its number: 0 … slots − 1
  std::size_t shards = 1, shard = 0;  // its part to take: with counts.sharding up to kMaxTakenSlots, else 1
  bool split_slots = false;           // shards share the slot, of which its rows are the first
  std::size_t input_rows = 0;         // rows that the input has room for
  std::size_t output_rows = 0;
  Stream stream = nullptr;
};
// With n rows in the slot (in the shard), which begin at row O of the input: output[i] = input[O + i] for i < n, and
// zero for n ≤ i < output_rows. SGLang's dp_scatter.
//
// Local: nothing is sent, no other rank need make the call, and calls of the group may run beside it. Strides, widths,
// addresses, and the counts of a replayed graph may vary as freely as in all_gather_v. One kernel; GPU: enqueued on
// `stream`; CPU: complete on return. Any thread, one at a time for each group.
//
// The output shares no byte with the input or the counts.
//
// Errors: an impossible call throws Errc::invalid_argument. Counts are wrong if they are negative, exceed a fixed or
// per_rank slot, or exceed one of the two capacities. Wrong counts end the communicator with Errc::capacity on this
// rank, like other failed calls. Nothing is written, because any use of such counts would be wrong everywhere. A
// communicator that has ended, or whose memory is released, takes no rows.
void take_rows(const Group& group, const TakeRowsArgs& args);

}  // namespace weft
