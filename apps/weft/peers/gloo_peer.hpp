// Gloo, the peer of the CPU path. It is a module of its own (weft-gloo-peer.so), built if Gloo is installed. Debian has
// Gloo only as a shared library, and `weft` must also run without it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "weft/types.hpp"

namespace weft::cli {

class GlooPeer {
 public:
  virtual ~GlooPeer() = default;

  // The threads of all ranks call it at the same time.
  virtual void all_reduce(int rank, const void* input, void* output, std::size_t count, DataType type, ReduceOp op,
                          bool bcube) = 0;
  // Rank r sends bytes[r] bytes; the sizes may differ. Gloo has no reduce-scatter with ragged shares.
  virtual void all_gather(int rank, const void* input, void* output, const std::vector<std::size_t>& bytes) = 0;
  // Bytes for each rank and of each rank.
  virtual void exchange(int rank, const void* input, void* output, const std::vector<std::size_t>& sent,
                        const std::vector<std::size_t>& received) = 0;
};

// Connects `ranks` Gloo ranks of this process over TCP on the loopback interface. Null if the module or Gloo is not
// installed.
std::unique_ptr<GlooPeer> open_gloo(int ranks);

// The module's entry point. The caller owns the result.
extern "C" GlooPeer* weft_open_gloo_peer(int ranks);

}  // namespace weft::cli
