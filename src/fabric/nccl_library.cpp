#if WEFT_WITH_CUDA

#include "fabric/nccl_library.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <utility>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr char kVersionFunction[] = "ncclGetVersion";  // whoever defines it is a copy

using Handle = std::unique_ptr<void, void (*)(void*)>;

Handle hold(void* handle) {
  return {handle, [](void* library) {
            if (library != nullptr) dlclose(library);
          }};
}

struct Copy {
  Handle handle;
  std::string path;
};

// The file that the object of an address lies in. The main program's name is empty, and stands for itself.
std::string path_of(const link_map* object) {
  if (object->l_name != nullptr && *object->l_name != 0) return object->l_name;
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/exe", none).string();
}

// The object that defines NCCL for this handle, perhaps one that the handle's own depends on; null if there is none.
const link_map* definer(void* handle) {
  void* const function = dlsym(handle, kVersionFunction);
  Dl_info info{};
  void* object = nullptr;
  if (function == nullptr || dladdr1(function, &info, &object, RTLD_DL_LINKMAP) == 0) return nullptr;
  return static_cast<const link_map*>(object);
}

std::vector<Copy> open_copies() {
  std::vector<std::string> names;
  // Not opened inside: dlopen() needs the lock that dl_iterate_phdr() holds.
  dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t, void* list) {
        static_cast<std::vector<std::string>*>(list)->emplace_back(object->dlpi_name);
        return 0;
      },
      &names);
  std::vector<Copy> copies;
  for (const std::string& name : names) {
    const char* const file = name.empty() ? nullptr : name.c_str();
    Handle handle = hold(dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD));
    link_map* own = nullptr;
    if (handle == nullptr || dlinfo(handle.get(), RTLD_DI_LINKMAP, &own) != 0 || definer(handle.get()) != own) continue;
    copies.push_back({std::move(handle), path_of(own)});
  }
  return copies;
}

bool same_file(const std::string& one, const std::string& other) {
  std::error_code none;
  return !other.empty() && (one == other || std::filesystem::equivalent(one, other, none));
}

// Takes the copy behind the handle, or says why it cannot be used.
void take_copy(NcclFinding& finding, Handle handle, NcclOrigin origin) {
  const link_map* const object = definer(handle.get());
  if (object == nullptr) {
    finding.problem = fmt::format("NCCL: a library was found that has no {}", kVersionFunction);
    return;
  }
  NcclLibrary library{.handle = handle.release(), .path = path_of(object), .origin = origin};
  int (*const get_version)(int*) = library.find(kVersionFunction);
  if (get_version(&library.version) != 0) library.version = 0;
  const int version = library.version;
  finding.taken = std::move(library);
  if (version >= kOldestNccl && version / 10000 == kOldestNccl / 10000) return;
  finding.refuse(fmt::format("NCCL {} ({}): must be {} or newer, of version 2", nccl_version_text(version),
                             finding.taken->path, nccl_version_text(kOldestNccl)));
}

NcclFinding take_own(std::vector<Copy> copies, const NcclSearch& search) {
  NcclFinding finding;
  // A program's wish does not choose between copies: it cannot know which one made an engine's communicators.
  const bool chooses = search.namer == kNcclVariable;
  const auto named =
      std::ranges::find_if(copies, [&](const Copy& copy) { return chooses && same_file(copy.path, search.named); });
  Copy& own = named != copies.end() ? *named : copies.front();
  for (const Copy& copy : copies) {
    if (&copy != &own) finding.notes.push_back(fmt::format("not taken: {}, another copy in this process", copy.path));
  }
  if (!search.named.empty() && named == copies.end()) {
    finding.notes.push_back(
        fmt::format("not taken: {}={}: the process has a copy already", search.namer, search.named));
  }
  finding.notes.push_back(fmt::format("not looked for: the system's {}", search.system));
  take_copy(finding, std::move(own.handle), named != copies.end() ? NcclOrigin::named : NcclOrigin::process);
  return finding;
}

}  // namespace

std::string nccl_version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

NcclSymbol NcclLibrary::find(const char* function) const {
  return NcclSymbol(dlsym(handle, function));
}

NcclSymbol NcclLibrary::need(const char* function) const {
  if (void* const address = dlsym(handle, function); address != nullptr) return NcclSymbol(address);
  throw Error(Errc::unsupported, fmt::format("NCCL {} ({}): has no {}", nccl_version_text(version), path, function));
}

void NcclFinding::refuse(std::string reason) {
  problem = std::move(reason);
  dlclose(taken->handle);
  taken.reset();
}

std::vector<std::string> nccl_copies() {
  std::vector<std::string> paths;
  for (const Copy& copy : open_copies()) paths.push_back(copy.path);
  return paths;
}

NcclFinding find_nccl(const NcclSearch& search) {
  if (auto copies = open_copies(); !copies.empty()) return take_own(std::move(copies), search);
  NcclFinding finding{.notes = {"not taken: the process's own copy: it has none"}};
  const bool named = !search.named.empty();
  if (!named) finding.notes.push_back(fmt::format("not taken: {}: it is not set", kNcclVariable));
  if (named) finding.notes.push_back(fmt::format("not looked for: the system's {}", search.system));
  const std::string& file = named ? search.named : search.system;
  Handle handle = hold(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (handle == nullptr) {
    const char* const reason = dlerror();
    finding.problem = fmt::format("no NCCL: {}{}: {}", named ? search.namer + " names " : "", file,
                                  reason != nullptr ? reason : "cannot be loaded");
    return finding;
  }
  take_copy(finding, std::move(handle), named ? NcclOrigin::named : NcclOrigin::system);
  return finding;
}

}  // namespace weft::detail

#endif
