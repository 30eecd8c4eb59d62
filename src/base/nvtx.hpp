// Ranges on the timelines of NVIDIA's profilers. They cost a function call while no profiler is attached, and nothing
// in a build without CUDA.
#pragma once

#if WEFT_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace weft::detail {

class NvtxRange {
 public:
#if WEFT_WITH_CUDA
  explicit NvtxRange(const char* name) {
    nvtxDomainRangePushEx(domain(), attributes(name));
  }
  ~NvtxRange() {
    nvtxDomainRangePop(domain());
  }
#else
  explicit NvtxRange(const char*) {}
#endif
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

#if WEFT_WITH_CUDA
 private:
  static nvtxDomainHandle_t domain() {
    static const nvtxDomainHandle_t weft = nvtxDomainCreateA("weft");
    return weft;
  }
  static const nvtxEventAttributes_t* attributes(const char* name) {
    thread_local nvtxEventAttributes_t made{};
    made.version = NVTX_VERSION;
    made.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
    made.messageType = NVTX_MESSAGE_TYPE_ASCII;
    made.message.ascii = name;
    return &made;
  }
#endif
};

}  // namespace weft::detail
