// Arguments of take_rows' kernel.
#pragma once

#include <cstdint>

#include "ops/moves/shares.hpp"

namespace weft::detail {

struct TakeWork {
  CountedShares slots;
  std::uint32_t slot, shards, shard;
  Split split;
  bool split_slots;
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride, output_rows;
};

}  // namespace weft::detail
