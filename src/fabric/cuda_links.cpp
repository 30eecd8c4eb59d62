#if WEFT_WITH_CUDA

#include "fabric/cuda_links.hpp"

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "base/limits.hpp"
#include "fabric/nvml.hpp"
#include "kernel/cuda_error.hpp"
#include "rendezvous/process_identity.hpp"

namespace weft::detail {
namespace {

struct Place {
  ProcessIdentity process;
  char pci[32] = {};  // the same in every process of the host; device numbers are not
};

// NVLink supports atomic operations natively, PCIe only in part or not at all. A GPU that the process does not see
// (CUDA_VISIBLE_DEVICES) has no number here.
Link ask(const Place& mine, const Place& theirs, int device) {
  if (!theirs.process.same_host(mine.process)) return Link::apart;
  if (std::strcmp(mine.pci, theirs.pci) == 0) return Link::nvlink;
  int peer = -1, native = 0;
  if (cudaDeviceGetByPCIBusId(&peer, theirs.pci) == cudaSuccess) {
    check_cuda(cudaDeviceGetP2PAttribute(&native, cudaDevP2PAttrNativeAtomicSupported, device, peer),
               "cudaDeviceGetP2PAttribute");
    return native != 0 ? Link::nvlink : Link::pcie;
  }
  static_cast<void>(cudaGetLastError());
  const auto linked = Nvml().are_linked(mine.pci, theirs.pci);
  return !linked ? Link::unknown : *linked ? Link::nvlink : Link::pcie;
}

}  // namespace

LinkTable gather_links(Bootstrap& bootstrap, int device) {
  const auto size = static_cast<std::size_t>(bootstrap.size());
  Place mine{.process = ProcessIdentity::current()};
  bootstrap.agree_on("find the GPU's address", [&] {
    check_cuda(cudaDeviceGetPCIBusId(mine.pci, sizeof(mine.pci), device), "cudaDeviceGetPCIBusId");
  });
  const auto places = bootstrap.all_gather_value("compare places", mine);
  struct Row {
    Link to[kMaxRanks];
  };
  Row row{};
  bootstrap.agree_on("ask for NVLink", [&] {
    for (std::size_t peer = 0; peer < size; ++peer) {
      const bool pretended = pretended_pcie.is(bootstrap.rank(), static_cast<int>(peer));
      row.to[peer] = pretended ? Link::pcie : ask(mine, places[peer], device);
    }
  });
  LinkTable table;
  for (const Row& each : bootstrap.all_gather_value("compare links", row)) table.emplace_back(each.to, each.to + size);
  return table;
}

}  // namespace weft::detail

#endif
