// What an all-reduce is called with.
#pragma once

#include <cstdint>

namespace weft::detail {

struct AllReduceWork {
  const void* input;
  void* output;
  std::uint64_t count;  // elements
  // Of the bulk all-reduce, and each rank's own affair:
  std::uint32_t crews = 1;  // parts of a block that are taken for blocks, where executors can
  bool apart = false;       // a data block reduces or moves, more chunks; there are two or more data blocks
};

}  // namespace weft::detail
