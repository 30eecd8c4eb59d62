// Where the regions of a communicator lie in window 0: every rank computes the same from Config and the world's size.
#pragma once

#include <cstddef>
#include <cstdint>

#include "protocol/channel.hpp"
#include "weft/communicator.hpp"

namespace weft::detail {

// `config.device` has been chosen.
RegionLayout world_layout(const Config& config, std::uint32_t size);
// What of it is the multimem all-reduces'.
MultimemLayout world_multimem(const Config& config, std::uint32_t size);
// Of a group that split() makes, of `size` ranks.
RegionLayout group_layout(const Config& config, std::uint32_t size);

// Of region `group`: the world's is 0, that of the i-th split i.
std::size_t region_offset(const Config& config, std::uint32_t world_size, int group);
// Of the whole window, on each rank.
inline std::size_t window_bytes(const Config& config, std::uint32_t world_size) {
  return region_offset(config, world_size, config.max_groups + 1);
}

}  // namespace weft::detail
