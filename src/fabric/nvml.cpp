#include "fabric/nvml.hpp"

namespace weft::detail {

Nvml::Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), close) {
  if (!library_) return;
  const auto init = find<int()>("nvmlInit_v2");
  if (init != nullptr && init() == 0) handle_ = find<int(const char*, Device*)>("nvmlDeviceGetHandleByPciBusId_v2");
}

Nvml::Device Nvml::device(const std::string& pci) const {
  Device found = nullptr;
  return handle_ != nullptr && handle_(pci.c_str(), &found) == 0 ? found : nullptr;
}

std::optional<bool> Nvml::are_linked(const std::string& pci, const std::string& other) const {
  constexpr int by_nvlink = 2, ok = 0;  // of nvmlGpuP2PCapsIndex_t and nvmlGpuP2PStatus_t
  const Device from = device(pci), to = device(other);
  if (from == nullptr || to == nullptr) return std::nullopt;
  const auto ask = find<int(Device, Device, int, int*)>("nvmlDeviceGetP2PStatus");
  int status = -1;
  if (ask == nullptr || ask(from, to, by_nvlink, &status) != 0) return std::nullopt;
  return status == ok;
}

}  // namespace weft::detail
