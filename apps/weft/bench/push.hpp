// A bound for the links: every rank stores the same bytes to all ranks, and no rank waits for another.
#pragma once

#include <cstddef>

#include "weft/collectives.hpp"

namespace weft::cli {

inline constexpr int kMostPushed = 8;

struct PushArgs {
  const void* input = nullptr;  // `bytes` bytes; `bytes` and the address are multiples of 16
  std::size_t bytes = 0;
  int rank = 0, ranks = 0;          // at most kMostPushed
  void* outputs[kMostPushed] = {};  // one per rank, each with room for all ranks' bytes
  bool to_itself = true;            // whether a rank stores to its own output, too
  int blocks = 0;                   // 0: one for each processor
};

// Enqueues the stores of one rank. They have arrived once the streams of all ranks are done.
void enqueue_push(const PushArgs& args, Stream stream);

// The same kernel within one GPU, as the bound of its memory.
struct CopyArgs {
  const void* input = nullptr;  // `bytes` bytes; `bytes` and both addresses are multiples of 16
  void* output = nullptr;
  std::size_t bytes = 0;
  int blocks = 0;  // 0: one for each processor
};
void enqueue_copy(const CopyArgs& args, Stream stream);

}  // namespace weft::cli
