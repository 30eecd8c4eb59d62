// Sizes of a region's buffers if Config gives none.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "protocol/channel.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// Defaults of Config's limits, in bytes of message.
std::size_t default_one_shot_bytes(Device device, std::uint32_t size);
std::size_t default_two_shot_bytes(Device device, std::uint32_t size);

// Chunks must be worth their signals' round trip. On the GPU, slots are for as many blocks as saturate the links, and
// few ranks have larger chunks in the same memory.
constexpr PipelineShape default_pipeline_shape(Device device, std::uint32_t size, bool world) {
  if (device == Device::cpu) return {.slots = 8, .packs = 1024};
  return {.slots = world ? 256u : 32u, .packs = std::max(std::bit_floor(8192 / size), 256u)};
}

}  // namespace weft::detail
