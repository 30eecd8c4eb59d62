// NVIDIA's management library: it knows GPUs of this machine that the process does not see, and the links between them.
#pragma once

#include <dlfcn.h>

#include <memory>
#include <optional>
#include <string>

namespace weft::detail {

// It comes with the driver. Its header does not come with the CUDA packages that Weft is built with.
class Nvml {
 public:
  using Device = void*;
  Nvml();

  // The GPU at a PCI address ("0000:18:00.0"); null if there is no NVML, or it shows no GPU there.
  Device device(const std::string& pci) const;
  // Whether NVLinks lead from one to the other, directly or by switches; empty if not known.
  std::optional<bool> are_linked(const std::string& pci, const std::string& other) const;

 protected:
  template <class Function>
  Function* find(const char* name) const {
    return library_ ? reinterpret_cast<Function*>(dlsym(library_.get(), name)) : nullptr;
  }

 private:
  static void close(void* library) {
    if (library != nullptr) dlclose(library);
  }

  std::unique_ptr<void, void (*)(void*)> library_;
  int (*handle_)(const char*, Device*) = nullptr;  // null if NVML cannot be used
};

}  // namespace weft::detail
