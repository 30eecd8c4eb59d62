// A bound for what crosses links: every rank stores the same bytes to all, and nobody waits for anybody.
#pragma once

#include <cstddef>

#include "weft/collectives.hpp"

namespace weft::cli {

inline constexpr int kMostPushed = 8;

struct PushArgs {
  const void* input = nullptr;  // `bytes` bytes, a multiple of 16, as addresses are
  std::size_t bytes = 0;
  int rank = 0, ranks = 0;          // at most kMostPushed
  void* outputs[kMostPushed] = {};  // of each rank: all ranks' bytes
  bool to_itself = true;            // as well
  int blocks = 0;                   // 0: one for each processor
};

// Enqueues the stores of one rank. They are there when the streams of all ranks have been waited for.
void enqueue_push(const PushArgs& args, Stream stream);

}  // namespace weft::cli
