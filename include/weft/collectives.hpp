// Collective operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/communicator.hpp"
#include "weft/types.hpp"

namespace weft {

// How a kernel is launched. It is each rank's own affair: it never changes what crosses the wire.
struct Launch {
  int blocks = 0;   // one for control and the others for data, of which bulk uses a power of two; 0: chosen by size
  int threads = 0;  // per block, a multiple of 32 up to 1024; 0: chosen by size
};

struct AllReduceArgs {
  const void* input = nullptr;  // `count` elements; any alignment that the element type allows
  void* output = nullptr;       // `count` elements; may be equal to `input`, must not overlap it otherwise
  std::size_t count = 0;        // elements, 0 included; the same on every rank
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  Stream stream = nullptr;  // GPU: where the work is enqueued, in order; CPU: must be null
  std::uint32_t tag = 0;    // compared between ranks: a layer number, say, to find calls that went out of step
  Launch launch = {};
};

// output[i] = reduction over ranks r = 0 … size−1 of input_r[i], the same bits on every rank, in every run, by every
// algorithm of Weft's own, on CPU and GPU (fp32 accumulation in rank order, one rounding).
//
// Nothing is registered: pointers may be new in every call. GPU: enqueues kernels on `stream` and returns; capturable
// in CUDA graphs, and replays mix freely with eager calls of the same group as long as streams or events order them.
// Messages larger than the communicator's limits become several kernels. CPU: runs in the calling thread.
//
// Throws Errc::invalid_argument (rejected, nothing sent), Errc::released, or the fault of an earlier call. On CPU ranks
// a failure of this call is thrown here; on GPUs it is found by status() and check().
//
// Algorithms: one-shot and two-shot push with arrival in the data (flag-in-data goes back to NCCL's LL protocol; the
// sentinel form to TensorRT-LLM's "Lamport" kernels), see docs/protocol.md.
void all_reduce(const Group& group, const AllReduceArgs& args);

}  // namespace weft
