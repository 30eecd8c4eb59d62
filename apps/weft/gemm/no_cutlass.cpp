#include "gemm/grouped_gemm.hpp"

namespace weft::cli {

bool has_cutlass_gemms() {
  return false;
}
std::unique_ptr<ExpertGemms> open_cutlass_gemms(const GroupedGemmArgs&) {
  return nullptr;
}

}  // namespace weft::cli
