#include "base/build_info.hpp"

#include "weft_build_info.hpp"

namespace weft::detail {

const BuildInfo& build_info() {
  static constexpr BuildInfo info = {.version = WEFT_BUILD_VERSION,
                                     .commit = WEFT_BUILD_COMMIT,
                                     .dirty = WEFT_BUILD_DIRTY,
                                     .compiler = WEFT_BUILD_COMPILER,
                                     .build_type = WEFT_BUILD_TYPE,
                                     .cuda = WEFT_BUILD_CUDA,
                                     .nccl = WEFT_BUILD_NCCL};
  return info;
}

}  // namespace weft::detail
