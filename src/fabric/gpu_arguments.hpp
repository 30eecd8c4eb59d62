// Checks that the kernels of a GPU can use a caller's arguments. It runs before every call, so each check costs one
// question to CUDA if all is well.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "weft/types.hpp"

namespace weft::detail {

// All throw Errc::invalid_argument with the argument's name, whichever GPU is the calling thread's. Thread-safe.
class GpuArguments {
 public:
  void check_buffer(int device, const char* name, const void* data) const;
  void check_host_memory(const char* name, const void* data) const;
  void check_stream(int device, Stream stream) const;
  // The same, also for a stream that is known.
  void ask_about_stream(int device, Stream stream) const;

 private:
  std::atomic<Stream>& known_place(Stream stream) const {
    return streams_[reinterpret_cast<std::uintptr_t>(stream) / 16 % streams_.size()];
  }
  // Streams that were found to belong to the GPU. If one is destroyed and comes again as another GPU's, CUDA refuses it
  // when the kernel is launched.
  mutable std::array<std::atomic<Stream>, 16> streams_ = {};
};

}  // namespace weft::detail
