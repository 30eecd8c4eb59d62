#if WEFT_WITH_CUDA

#include "fabric/gpu_rest.hpp"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.hpp"

namespace weft::detail {
namespace {

// State that a waiter leaves to the thread when it gives up.
struct Rest {
  std::mutex mutex;
  std::condition_variable changed;
  bool come = false;
  std::exception_ptr error;
};

// A full GPU has no memory to take; pinned host memory does the same.
void take_and_free() {
  void* memory = nullptr;
  if (cudaMalloc(&memory, 1) == cudaSuccess) return check_cuda(cudaFree(memory), "waiting for the GPU");
  static_cast<void>(cudaGetLastError());
  check_cuda(cudaMallocHost(&memory, 1), "waiting for the GPU");
  check_cuda(cudaFreeHost(memory), "waiting for the GPU");
}

}  // namespace

void wait_for_rest(int device, std::chrono::nanoseconds limit) {
  const auto rest = std::make_shared<Rest>();
  std::thread([rest, device] {
    std::exception_ptr error;
    try {
      const SetupScope scope(device);
      take_and_free();
    } catch (...) {
      error = std::current_exception();
    }
    const std::scoped_lock lock(rest->mutex);
    rest->come = true;
    rest->error = error;
    rest->changed.notify_all();
  }).detach();
  std::unique_lock lock(rest->mutex);
  const auto come = [&] { return rest->come; };
  if (limit.count() == 0) {
    rest->changed.wait(lock, come);
  } else if (!rest->changed.wait_for(lock, limit, come)) {
    throw Error(Errc::timeout,
                fmt::format("GPU {} has not come to rest within {} ms: a kernel, of whichever program's "
                            "part, is still running, and memory cannot be given back beside it",
                            device, std::chrono::duration_cast<std::chrono::milliseconds>(limit).count()));
  }
  if (rest->error != nullptr) std::rethrow_exception(rest->error);
}

bool comes_to_rest(int device, std::chrono::nanoseconds limit) noexcept try {
  wait_for_rest(device, limit);
  return true;
} catch (const Error& error) {
  const bool ended = error.code() != Errc::timeout && cudaFree(nullptr) != cudaSuccess;
  if (ended) return true;
  logger().warn("{}; the communicator's memory is kept", error.what());
  return false;
} catch (const std::exception& error) {
  logger().warn("no thread could wait for GPU {} ({}); the communicator's memory is kept", device, error.what());
  return false;
}

}  // namespace weft::detail

#endif
