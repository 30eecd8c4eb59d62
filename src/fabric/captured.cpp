#if WEFT_WITH_CUDA

#include "fabric/captured.hpp"

#include <cuda_runtime_api.h>

#include <mutex>
#include <vector>

#include "fabric/fabric.hpp"
#include "kernel/cuda_error.hpp"

namespace weft::detail {
namespace {

// Fabrics whose last owner was a captured graph.
class Graveyard {
 public:
  static Graveyard& instance() {
    static Graveyard* graveyard = new Graveyard;  // never destroyed: CUDA may call back during exit
    return *graveyard;
  }
  void bury(std::shared_ptr<Fabric> fabric) {
    const std::scoped_lock lock(mutex_);
    dead_.push_back(std::move(fabric));
  }
  void clear() {
    std::vector<std::shared_ptr<Fabric>> dead;
    const std::scoped_lock lock(mutex_);
    dead.swap(dead_);
  }

 private:
  std::mutex mutex_;
  std::vector<std::shared_ptr<Fabric>> dead_;
};

}  // namespace

bool keep_for_graphs(Stream stream, const std::shared_ptr<Fabric>& fabric) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaGraph_t graph = nullptr;
  check_cuda(cudaStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr),
             "cudaStreamGetCaptureInfo");
  if (status != cudaStreamCaptureStatusActive) return false;
  const auto release = [](void* owner) {
    auto* share = static_cast<std::shared_ptr<Fabric>*>(owner);
    Graveyard::instance().bury(std::move(*share));
    delete share;
  };
  cudaUserObject_t object = nullptr;
  auto owner = std::make_unique<std::shared_ptr<Fabric>>(fabric);
  check_cuda(cudaUserObjectCreate(&object, owner.get(), release, 1, cudaUserObjectNoDestructorSync),
             "cudaUserObjectCreate");
  static_cast<void>(owner.release());  // the user object owns it now
  check_cuda(cudaGraphRetainUserObject(graph, object, 1, cudaGraphUserObjectMove), "cudaGraphRetainUserObject");
  return true;
}

void free_what_graphs_kept() {
  Graveyard::instance().clear();
}

}  // namespace weft::detail

#endif
