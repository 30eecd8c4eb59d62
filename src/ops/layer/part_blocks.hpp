// The blocks of the parts of a layer that Weft makes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "weft/moe_layer.hpp"

namespace weft::detail {

struct PartOfCall {
  const MoeLayerCall& call;
  LayerPart::Which which;
  std::uint32_t round, rounds;
};

// Whether GEMMs of the same call run beside a part: they begin behind the first wait, and end in front of the last
// send.
constexpr bool runs_beside_gemms(const PartOfCall& part) {
  if (part.which == LayerPart::Which::dispatch_wait) return part.round != 0;
  return part.which == LayerPart::Which::combine_send && part.round + 1 != part.rounds;
}

// As in Launch::blocks.
constexpr int blocks_of(const PartOfCall& part) {
  using Which = LayerPart::Which;
  if (part.call.alone_by_size && !runs_beside_gemms(part)) return 0;
  if (part.which == Which::dispatch_send) return part.call.send_num_sms;
  if (part.which == Which::dispatch || part.which == Which::dispatch_wait) return part.call.recv_num_sms;
  if (part.which == Which::combine_send) return part.call.combine_send_num_sms;
  if (part.which == Which::combine || part.which == Which::combine_wait) return part.call.combine_recv_num_sms;
  return 0;
}

// The activation has a block for each processor that the up GEMM may have. `most`: that run at once.
constexpr int blocks_of_activation(const MoeLayerCall& call, int most) {
  return call.up_num_sms != 0 ? std::min(call.up_num_sms, most) : most;
}

}  // namespace weft::detail
