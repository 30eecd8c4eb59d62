#include "comm/window_layout.hpp"

#include <algorithm>
#include <bit>

#include "base/units.hpp"
#include "protocol/mail.hpp"
#include "tuning/buffer_sizes.hpp"

namespace weft::detail {
namespace {

std::size_t or_default(std::size_t requested, std::size_t value) {
  return requested != 0 ? requested : value;
}

struct WorldAreas {
  RegionLayout region;
  MultimemLayout multimem;
};
WorldAreas world_areas(const Config& config, std::uint32_t size) {
  const bool small = config.small_buffers && config.device == Device::cuda;
  const std::size_t one_shot =
      or_default(config.one_shot_bytes, small ? kMiB / 2 : default_one_shot_bytes(config.device, size));
  const std::size_t two_shot =
      or_default(config.two_shot_bytes, small ? 3 * kMiB : default_two_shot_bytes(config.device, size));
  WorldAreas areas{.region = make_layout(size, one_shot, two_shot, default_pipeline_shape(config.device, size, !small)),
                   .multimem = {}};
  if (config.multicast) areas.multimem = add_multimem(areas.region, size, two_shot);
  return areas;
}

// Rounding may make a smaller group's region the larger one.
std::size_t group_region_bytes(const Config& config, std::uint32_t world_size) {
  std::size_t most = 0;
  for (std::uint32_t size = 1; size <= world_size; ++size) most = std::max(most, group_layout(config, size).bytes);
  return most;
}

}  // namespace

RegionLayout world_layout(const Config& config, std::uint32_t size) {
  return world_areas(config, size).region;
}
MultimemLayout world_multimem(const Config& config, std::uint32_t size) {
  return world_areas(config, size).multimem;
}

RegionLayout group_layout(const Config& config, std::uint32_t size) {
  const bool cpu = config.device == Device::cpu;
  const std::size_t one_shot = cpu ? default_one_shot_bytes(config.device, size) : kMiB / 2;
  const std::size_t two_shot = cpu ? default_two_shot_bytes(config.device, size) : 4 * kMiB;
  return make_layout(size, or_default(config.group_one_shot_bytes, one_shot),
                     or_default(config.group_two_shot_bytes, two_shot),
                     default_pipeline_shape(config.device, size, false));
}

// A chunk is under way for about 10 µs (two H100), until its credit has come back: a link is busy if there are 4 MiB of
// slots. On GPUs a rank has 16 MiB for all of its peers.
RegionLayout mail_layout(const Config& config, std::uint32_t size) {
  if (config.device == Device::cpu) return mail_layout(size, {.slots = 4, .packs = 256});
  if (config.small_buffers) return mail_layout(size, {.slots = 8, .packs = 256});
  return mail_layout(size, {.slots = std::clamp(512 / std::bit_ceil(size), 8u, 128u), .packs = 2048});
}

std::size_t region_offset(const Config& config, std::uint32_t world_size, int group) {
  if (group == 0) return kWindowHeaderBytes;
  return kWindowHeaderBytes + world_layout(config, world_size).bytes +
         static_cast<std::size_t>(group - 1) * group_region_bytes(config, world_size);
}

}  // namespace weft::detail
