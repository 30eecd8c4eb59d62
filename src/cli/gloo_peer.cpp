#include "gloo_peer.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

namespace weft::cli {

std::unique_ptr<GlooPeer> open_gloo(int ranks) {
  std::error_code none;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", none);
  if (none) return nullptr;
  void* module = dlopen((program.parent_path() / "weft-gloo-peer.so").c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr) return nullptr;
  const auto open = reinterpret_cast<decltype(&weft_open_gloo_peer)>(dlsym(module, "weft_open_gloo_peer"));
  return std::unique_ptr<GlooPeer>(open == nullptr ? nullptr : open(ranks));
}

}  // namespace weft::cli
