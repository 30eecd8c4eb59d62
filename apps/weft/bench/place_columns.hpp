// A peer's second step for logits: rank-major shards become rows, without the last shards' pads.
#pragma once

#include <cstddef>

#include "weft/collectives.hpp"

namespace weft::cli {

struct PlaceColumnsArgs {
  const void* shards = nullptr;  // [ranks, shard_rows, shard_bytes], of the first row that is placed
  void* output = nullptr;        // [rows, row_bytes]
  std::size_t rows = 0;
  std::size_t shard_rows = 0;
  std::size_t shard_bytes = 0;  // multiples of 16, as both addresses; so is row_bytes
  std::size_t row_bytes = 0;    // at most ranks · shard_bytes
};

// Enqueues it on a GPU.
void enqueue_place_columns(const PlaceColumnsArgs& args, Stream stream);

}  // namespace weft::cli
