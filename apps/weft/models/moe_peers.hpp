// The memory that other libraries take for dispatch and combine, computed from their public sources.
#pragma once

#include <cstddef>

#include "weft/moe.hpp"

namespace weft::cli {

// A layer that ranks share evenly. A rank without a full share counts as one that has it.
struct PeerLayer {
  std::size_t ranks, tokens, hidden, experts, top_k;  // tokens: of one rank in one dispatch
  bool fp8;                                           // dispatch's rows and their f32 scales, else bf16

  std::size_t local_experts() const { return (experts + ranks - 1) / ranks; }
  std::size_t scale_bytes() const { return hidden / kScaleColumns * 4; }
  std::size_t output_row() const { return fp8 ? hidden + scale_bytes() : hidden * 2; }
};

// Bytes on each rank: the library's buffers, and the caller's output of dispatch.
struct PeerMemory {
  std::size_t buffers, output;
};

// DeepEP V1, low-latency mode. Output: masked.
PeerMemory deepep_v1(const PeerLayer& layer);
// DeepEP V2 (ElasticBuffer) among ranks of one NVLink domain. Output: contiguous, without the host's knowledge of
// counts.
PeerMemory deepep_v2(const PeerLayer& layer);
// NCCL EP, low-latency mode. Output: masked, or rank-major.
PeerMemory nccl_ep_expert_major(const PeerLayer& layer);
PeerMemory nccl_ep_rank_major(const PeerLayer& layer);

}  // namespace weft::cli
