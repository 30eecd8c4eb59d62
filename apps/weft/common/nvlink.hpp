// NVLinks as the driver's management library (NVML) sees them.
#pragma once

#include <string>
#include <vector>

namespace weft::cli {

struct NvLinks {
  int present = 0;      // on the GPU; 0 if NVML does not say
  int up = 0;           // links that are up
  double gb_per_s = 0;  // of one link, each way (10^9)
  std::vector<int> to;  // links over which each GPU is reached: its own, or all those that end in a switch

  double rate_to(int gpu) const {
    const auto g = static_cast<std::size_t>(gpu);
    return g < to.size() ? to[g] * gb_per_s : 0;
  }
};

// Reads the GPUs at these PCI addresses ("0000:18:00.0"). Without NVML nothing is known of any GPU.
std::vector<NvLinks> read_nvlinks(const std::vector<std::string>& pci);

}  // namespace weft::cli
