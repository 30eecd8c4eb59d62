#include "common/nvlink.hpp"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>

#include "fabric/nvml.hpp"

namespace weft::cli {
namespace {

// The part of NVML's interface that is needed here.
using Handle = detail::Nvml::Device;
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

class LinkFields : public detail::Nvml {
 public:
  std::uint32_t field(Handle device, std::uint32_t field, std::uint32_t link) const {
    FieldValue value{};
    value.field = field;
    value.scope = link;
    return fields_ != nullptr && fields_(device, 1, &value) == 0 && value.result == 0 ? value.value.number : 0;
  }
  std::optional<PciAddress> remote(Handle device, std::uint32_t link) const {
    PciInfo info{};
    if (remote_ == nullptr || remote_(device, link, &info) != 0) return {};
    return PciAddress{info.domain, info.bus, info.device};
  }

 private:
  int (*fields_)(Handle, int, FieldValue*) = find<int(Handle, int, FieldValue*)>("nvmlDeviceGetFieldValues");
  int (*remote_)(Handle, unsigned,
                 PciInfo*) = find<int(Handle, unsigned, PciInfo*)>("nvmlDeviceGetNvLinkRemotePciInfo_v2");
};

PciAddress parse(const std::string& pci) {
  PciAddress address;
  if (std::sscanf(pci.c_str(), "%x:%x:%x", &address.domain, &address.bus, &address.device) != 3) return {};
  return address;
}

}  // namespace

std::vector<NvLinks> read_nvlinks(const std::vector<std::string>& pci) {
  std::vector<NvLinks> all(pci.size());
  const LinkFields nvml;
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
