// Delays of ranks, each in its own way.
#pragma once

#include <chrono>
#include <random>
#include <thread>

#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"

namespace weft::test {

// Delays on the host or on the GPU.
inline void dawdle_somewhere(std::mt19937& delays, GpuRank& gpu) {
  const auto choice = delays();
  const std::chrono::microseconds time(choice / 64 % 100);
  if (choice % 32 == 0) std::this_thread::sleep_for(time);
  if (choice % 32 < 4) delay(time, gpu.stream());
}

}  // namespace weft::test
