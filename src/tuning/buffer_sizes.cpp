#include "tuning/buffer_sizes.hpp"

#include "base/units.hpp"

namespace weft::detail {

std::size_t default_one_shot_bytes(Device device, std::uint32_t size) {
  if (device == Device::cpu) return 64 * kKiB;
  if (size <= 2) return 8 * kMiB;
  return size <= 4 ? 1 * kMiB : 512 * kKiB;
}

// On CPU ranks small: slots are filled when a communicator is made, and no all-reduce goes two-shot there unless it is
// named (tuning/cpu.json).
std::size_t default_two_shot_bytes(Device device, std::uint32_t) {
  return device == Device::cpu ? 256 * kKiB : 16 * kMiB;
}

}  // namespace weft::detail
