// Arguments of take_rows' kernel.
#pragma once

#include <cstdint>

#include "ops/moves/row_partition.hpp"

namespace weft::detail {

struct TakeWork {
  CountedPartition slots;
  std::uint32_t slot, shards, shard;
  Sharding sharding;
  bool split_slots;
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride, output_rows;
};

}  // namespace weft::detail
