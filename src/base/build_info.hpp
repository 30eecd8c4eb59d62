// The sources and tools of this build of Weft. Results carry them, so that a number can be traced to its source.
#pragma once

#include <string_view>

namespace weft::detail {

struct BuildInfo {
  std::string_view version;     // "0.1.0"
  std::string_view commit;      // 12 digits, or "unknown" outside a git checkout
  bool dirty = false;           // the tree had uncommitted changes
  std::string_view compiler;    // "GNU 12.2.0"
  std::string_view build_type;  // "RelWithDebInfo"
  std::string_view cuda;        // toolkit that compiled the CUDA part, or "none"
  std::string_view nccl;        // headers that the CUDA part was compiled with, or "none"
};

const BuildInfo& build_info();

}  // namespace weft::detail
