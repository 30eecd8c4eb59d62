#include "nvlink.hpp"

#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

namespace weft::cli {
namespace {

// The few parts of NVML's interface that are needed. It comes with the driver; its header does not come with the CUDA
// packages that this program is built with.
using Handle = void*;
struct FieldValue {
  std::uint32_t field;
  std::uint32_t scope;  // link
  std::int64_t timestamp, latency;
  std::int32_t type;
  std::int32_t result;
  union {
    std::uint32_t number;
    std::uint64_t widest;
  } value;
};
struct PciInfo {
  char legacy_id[16];
  std::uint32_t domain, bus, device;
  std::uint32_t device_id, subsystem_id;
  char id[32];
  char spare[64];  // later versions are longer
};
constexpr std::uint32_t kLinkCount = 91, kLinkSpeed = 164 /* MB/s */, kLinkState = 165;

struct PciAddress {
  unsigned domain = 0, bus = 0, device = 0;
  bool operator==(const PciAddress&) const = default;
};

class Nvml {
 public:
  Nvml() : library_(dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL), close) {
    if (!library_) return;
    const auto init = find<int()>("nvmlInit_v2");
    handle_ = find<int(const char*, Handle*)>("nvmlDeviceGetHandleByPciBusId_v2");
    fields_ = find<int(Handle, int, FieldValue*)>("nvmlDeviceGetFieldValues");
    remote_ = find<int(Handle, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
    usable_ = init != nullptr && handle_ != nullptr && fields_ != nullptr && init() == 0;
  }

  Handle device(const std::string& pci) const {
    Handle handle = nullptr;
    return usable_ && handle_(pci.c_str(), &handle) == 0 ? handle : nullptr;
  }
  std::uint32_t field(Handle device, std::uint32_t field, std::uint32_t link) const {
    FieldValue value{};
    value.field = field;
    value.scope = link;
    return fields_(device, 1, &value) == 0 && value.result == 0 ? value.value.number : 0;
  }
  std::optional<PciAddress> remote(Handle device, std::uint32_t link) const {
    PciInfo info{};
    if (remote_ == nullptr || remote_(device, link, &info) != 0) return {};
    return PciAddress{info.domain, info.bus, info.device};
  }

 private:
  static void close(void* library) {
    if (library != nullptr) dlclose(library);
  }
  template <class Function>
  Function* find(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(library_.get(), name));
  }

  std::unique_ptr<void, void (*)(void*)> library_;
  int (*handle_)(const char*, Handle*) = nullptr;
  int (*fields_)(Handle, int, FieldValue*) = nullptr;
  int (*remote_)(Handle, unsigned, PciInfo*) = nullptr;
  bool usable_ = false;
};

PciAddress parse(const std::string& pci) {
  PciAddress address;
  if (std::sscanf(pci.c_str(), "%x:%x:%x", &address.domain, &address.bus, &address.device) != 3) return {};
  return address;
}

}  // namespace

std::vector<NvLinks> read_nvlinks(const std::vector<std::string>& pci) {
  std::vector<NvLinks> all(pci.size());
  const Nvml nvml;
  for (std::size_t gpu = 0; gpu < pci.size(); ++gpu) {
    const Handle device = nvml.device(pci[gpu]);
    if (device == nullptr) continue;
    NvLinks& links = all[gpu];
    links.present = static_cast<int>(nvml.field(device, kLinkCount, 0));
    links.to.resize(pci.size());
    for (int link = 0; link < links.present; ++link) {
      const auto number = static_cast<std::uint32_t>(link);
      const std::uint32_t speed = nvml.field(device, kLinkSpeed, number);
      if (nvml.field(device, kLinkState, number) == 0 || speed == 0) continue;
      ++links.up;
      links.gb_per_s = speed / 1e3;
      const auto remote = nvml.remote(device, number);
      const auto ends_at = [&](std::size_t peer) { return remote && *remote == parse(pci[peer]); };
      bool direct = false;
      for (std::size_t peer = 0; peer < pci.size(); ++peer) direct |= ends_at(peer);
      for (std::size_t peer = 0; peer < pci.size(); ++peer)
        if (peer != gpu && (!direct || ends_at(peer))) ++links.to[peer];
    }
  }
  return all;
}

}  // namespace weft::cli
