#include "measure.hpp"

namespace weft::cli {

std::unique_ptr<Bench> open_bench(Ranks& ranks, const BenchArgs& args) {
#if WEFT_WITH_CUDA
  if (ranks.device() == Device::cuda) return open_cuda_bench(ranks, args);
#endif
  return open_cpu_bench(ranks, args);
}

std::string chosen_algorithm(const Group& group) {
  const auto calls = group.recent_calls();
  if (calls.empty()) return {};
  for (const auto algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::nccl})
    if (calls.back().operation.find(name(algorithm)) != std::string::npos) return std::string(name(algorithm));
  return {};
}

}  // namespace weft::cli
