// Gloo, the peer of the CPU path. It lives in a module of its own (weft-gloo-peer.so, built where Gloo is installed),
// because Debian has Gloo as a shared library alone and `weft` shall also run where it is missing.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "weft/types.hpp"

namespace weft::cli {

class GlooPeer {
 public:
  virtual ~GlooPeer() = default;

  // To be called by the thread of each rank at once.
  virtual void all_reduce(int rank, const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          bool bcube) = 0;
  // bytes[r] of rank r, which may differ. Sums have no scatter in Gloo that knows ragged shares.
  virtual void all_gather(int rank, const void* input, void* output, const std::vector<std::size_t>& bytes) = 0;
};

// Connects `ranks` Gloo ranks of this process over TCP on the loopback interface; null where the module, or Gloo, is
// not installed.
std::unique_ptr<GlooPeer> open_gloo(int ranks);

// The module's entry point. The caller owns the result.
extern "C" GlooPeer* weft_open_gloo_peer(int ranks);

}  // namespace weft::cli
