// The places of a communicator's regions in window 0: every rank computes the same from Config and the world's size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/channel.hpp"
#include "weft/communicator.hpp"

namespace weft::detail {

// `config.device` must have been chosen.
RegionLayout world_layout(const Config& config, std::uint32_t size);
// The part of it for the multimem all-reduces.
MultimemLayout world_multimem(const Config& config, std::uint32_t size);
// The layout of a group of `size` ranks that split() makes.
RegionLayout group_layout(const Config& config, std::uint32_t size);

// The layout of the region for messages, behind those of all groups.
RegionLayout mail_layout(const Config& config, std::uint32_t size);

// The offset of region `group`: the world's is 0, the i-th split's is i, the mail's is Config::max_groups + 1.
std::size_t region_offset(const Config& config, std::uint32_t world_size, int group);
// Bytes of the whole window, on each rank.
inline std::size_t window_bytes(const Config& config, std::uint32_t world_size) {
  return region_offset(config, world_size, config.max_groups + 1) + mail_layout(config, world_size).bytes;
}

}  // namespace weft::detail
