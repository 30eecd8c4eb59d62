#if WEFT_WITH_CUDA

#include <algorithm>

#include "fabric/launch_room.hpp"
#include "kernel/cuda_error.hpp"
#include "kernel/executor.hpp"

namespace weft::detail {

void LaunchRoom::open(int device, int processors) {
  device_ = device;
  blocks_ = std::min(load_kernels(), processors + 1);
}

void LaunchRoom::share(int ranks) {
  parts_ = 2 * ranks;
  blocks_ = std::max(blocks_ / parts_, 2);
}

int LaunchRoom::paired_blocks() const {
  std::call_once(asked_, [&] {
    const DeviceScope scope(device_);
    pairs_ = most_paired_blocks() / 2;
  });
  return std::max(2 * std::min(pairs_ / parts_, blocks_ / 2), 2);
}

}  // namespace weft::detail

#endif
