// A build without CUDA says so.
#include "fabric/fabric.hpp"

#if !WEFT_WITH_CUDA

namespace weft::detail {

std::string why_no_cuda(int) {
  return "this build has no CUDA part (nvcc or NCCL was not found when it was configured)";
}

int cuda_device_in_turn(int number) {
  return number;
}

std::shared_ptr<Fabric> make_cuda_fabric(const FabricArgs&) {
  throw Error(Errc::unsupported, why_no_cuda(-1));
}

}  // namespace weft::detail

#endif
