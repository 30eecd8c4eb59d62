// Reads facts about the machine from CUDA and NCCL, and sums on the host over the GPU ranks of a launched job.
#include <memory>
#include <string>
#include <utility>

#include "common/cuda_check.hpp"
#include "common/machine.hpp"
#include "common/ranks.hpp"
#include "fabric/fabric.hpp"
#include "fabric/nccl_table.hpp"
#include "kernel/cuda_error.hpp"
#include "weft/collectives.hpp"

namespace weft::cli {
namespace {

std::string cuda_version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// NVLink lets peers use atomics on each other's memory. PCIe carries plain loads and stores at most.
std::string reach(int from, int to) {
  if (from == to) return "self";
  int access = 0;
  int atomics = 0;
  if (cudaDeviceCanAccessPeer(&access, from, to) != cudaSuccess || access == 0) return "none";
  if (cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to) != cudaSuccess) return "PCIe";
  return atomics != 0 ? "NVLink" : "PCIe";
}

}  // namespace

int usable_gpus() {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) {
    static_cast<void>(cudaGetLastError());
    return 0;
  }
  for (int device = 0; device < count; ++device)
    if (!detail::why_too_old(device).empty()) return device;
  return count;
}

void describe_cuda(Machine& machine) {
  machine.cuda_runtime = cuda_version(CUDART_VERSION);
  machine.nccl_compiled = detail::nccl_version_text(NCCL_VERSION_CODE);
  detail::NcclReport nccl = detail::nccl_report();
  machine.nccl_runtime = nccl.version;
  machine.nccl_path = nccl.path;
  machine.nccl_origin = nccl.origin;
  machine.nccl_notes = std::move(nccl.notes);
  if (!nccl.problem.empty()) machine.nccl_notes.insert(machine.nccl_notes.begin(), nccl.problem);
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess && version > 0) machine.driver = cuda_version(version);

  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  if (result != cudaSuccess || count == 0) {
    static_cast<void>(cudaGetLastError());
    machine.cuda_problem = result != cudaSuccess ? cudaGetErrorString(result) : "no GPU";
    return;
  }
  machine.cuda_problem = nccl.problem;
  std::vector<std::string> pci;
  for (int device = 0; device < count; ++device) {
    cudaDeviceProp properties;
    check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    Gpu gpu{.name = properties.name,
            .memory = properties.totalGlobalMem,
            .multiprocessors = properties.multiProcessorCount,
            .architecture = "sm_" + std::to_string(properties.major) + std::to_string(properties.minor),
            .reach = {},
            .links = {}};
    for (int peer = 0; peer < count; ++peer) gpu.reach.push_back(reach(device, peer));
    machine.gpus.push_back(std::move(gpu));
    char address[32] = {};
    check(cudaDeviceGetPCIBusId(address, sizeof(address), device), "cudaDeviceGetPCIBusId");
    pci.emplace_back(address);
  }
  if (machine.cuda_problem.empty()) machine.cuda_problem = detail::why_too_old(0);
  const auto links = read_nvlinks(pci);
  for (std::size_t device = 0; device < links.size(); ++device) machine.gpus[device].links = links[device];
}

void cuda_sum(const Group& group, int device, std::span<std::int32_t> words) {
  const detail::DeviceScope scope(device);
  void* buffer = nullptr;
  cudaStream_t stream = nullptr;
  check(cudaMalloc(&buffer, words.size_bytes()), "cudaMalloc");
  const std::unique_ptr<void, void (*)(void*)> freed(buffer, [](void* memory) { static_cast<void>(cudaFree(memory)); });
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const std::unique_ptr<CUstream_st, void (*)(cudaStream_t)> destroyed(
      stream, [](cudaStream_t s) { static_cast<void>(cudaStreamDestroy(s)); });
  check(cudaMemcpyAsync(buffer, words.data(), words.size_bytes(), cudaMemcpyHostToDevice, stream), "cudaMemcpy");
  all_reduce(group,
             {.input = buffer, .output = buffer, .count = words.size(), .type = DataType::i32, .stream = stream});
  check(cudaMemcpyAsync(words.data(), buffer, words.size_bytes(), cudaMemcpyDeviceToHost, stream), "cudaMemcpy");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  group.check();
}

}  // namespace weft::cli
