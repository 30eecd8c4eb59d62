#include "models/moe_peers.hpp"

#include <algorithm>

namespace weft::cli {
namespace {

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t step) {
  return (bytes + step - 1) / step * step;
}

// A returned row of bf16 in V1 and NCCL EP: they add 4 bytes per 128 columns.
std::size_t returned_row(const PeerLayer& layer) {
  return layer.hidden * 2 + layer.scale_bytes();
}
// A word for each expert.
std::size_t signals(const PeerLayer& layer) {
  return rounded_up(layer.experts * 4, 128);
}

// In both layouts a token is sent once per rank. Expert-major: an entry of the header has an expert's number, and
// results are sent from a slot for each token of each expert. Rank-major: an entry has a weight, too, and results are
// sent from a slot for each token of each rank. Each entry has a slot to receive results.
std::size_t nccl_ep_buffers(const PeerLayer& layer, bool by_rank) {
  const std::size_t header = rounded_up(4 + (by_rank ? 8 : 2) * layer.top_k, 16);
  const std::size_t dispatch = layer.tokens * (header + layer.hidden * 2) * (1 + layer.ranks);
  const std::size_t combine =
      layer.tokens * returned_row(layer) * ((by_rank ? layer.ranks : layer.experts) + layer.top_k);
  return 2 * (std::max(dispatch, combine) + signals(layer));
}

std::size_t masked_output(const PeerLayer& layer) {
  return layer.local_experts() * layer.ranks * layer.tokens * layer.output_row();
}

}  // namespace

// Every expert has room for every token of every rank, to send and to receive. Dispatch and combine share this room, so
// the larger counts. There are two such buffers.
PeerMemory deepep_v1(const PeerLayer& layer) {
  const std::size_t message = 16 + std::max(layer.hidden * 2, layer.hidden + layer.scale_bytes());
  const std::size_t result = returned_row(layer), rows = layer.experts * layer.tokens;
  const std::size_t send = std::max(layer.tokens * message, rows * result), receive = rows * std::max(message, result);
  return {.buffers = 2 * (send + receive + signals(layer)), .output = masked_output(layer)};
}

// A token is sent once per rank, with ids and weights. Dispatch and combine share one buffer. The bound of the scales'
// bytes is one f32 per 32 columns. A contiguous output has room for every token at as many experts as can be.
PeerMemory deepep_v2(const PeerLayer& layer) {
  constexpr std::size_t kPart = 32, kBuffer = std::size_t{2} << 20;
  const std::size_t row = layer.fp8 ? layer.hidden : layer.hidden * 2,
                    scales = layer.fp8 ? (layer.hidden + 31) / 32 * 4 : 0;
  const std::size_t sent =
      rounded_up(row, kPart) + rounded_up(scales, kPart) + rounded_up(layer.top_k * 8 + (1 + layer.top_k) * 4, kPart);
  const std::size_t returned = rounded_up(layer.hidden * 2, kPart) + rounded_up(layer.top_k * 8, kPart);
  const std::size_t dispatch = layer.ranks * layer.tokens * sent;
  const std::size_t combine = std::min(layer.ranks, layer.top_k) * layer.tokens * returned;
  const std::size_t rows = layer.ranks * layer.tokens * std::min(layer.top_k, layer.local_experts());
  return {.buffers = rounded_up(std::max(dispatch, combine), kBuffer), .output = rows * layer.output_row()};
}

PeerMemory nccl_ep_expert_major(const PeerLayer& layer) {
  return {.buffers = nccl_ep_buffers(layer, false), .output = masked_output(layer)};
}

// Ids and weights come with each row.
PeerMemory nccl_ep_rank_major(const PeerLayer& layer) {
  return {.buffers = nccl_ep_buffers(layer, true),
          .output = layer.ranks * layer.tokens * (layer.output_row() + layer.top_k * 8)};
}

}  // namespace weft::cli
