// Memory and time of one rank's MoE benchmark, on a CPU rank or a GPU rank.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "ranks.hpp"

namespace weft::cli {

class MoeDevice {
 public:
  virtual ~MoeDevice() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // freed with the device
  virtual void upload(void* to, const void* from, std::size_t bytes) = 0;
  virtual void download(void* to, const void* from, std::size_t bytes) = 0;
  virtual void fill(void* to, int byte, std::size_t bytes) = 0;
  virtual Stream stream() const = 0;

  // µs per operation of `samples` measurements. `operation` enqueues one, `before_last` runs before the last sample.
  virtual std::vector<double> time(Ranks::Seat& seat, int samples, const std::function<void()>& operation,
                                   const std::function<void()>& before_last) = 0;
};

std::unique_ptr<MoeDevice> open_cpu_moe_device();
std::unique_ptr<MoeDevice> open_cuda_moe_device(int device);  // only in a build with CUDA

}  // namespace weft::cli
