// The places of the stand-ins for NCCL (tests/stubs).
#pragma once

#include <filesystem>
#include <string>

namespace weft::test {

// Beside the executable; `version` as NCCL_VERSION_CODE.
inline std::string nccl_stub(int version) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "stubs" / std::to_string(version);
  return (folder / "libnccl.so.2").string();
}

}  // namespace weft::test
