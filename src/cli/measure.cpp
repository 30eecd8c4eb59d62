#include "measure.hpp"

namespace weft::cli {

double operation_us(const Result& result) {
  if (result.samples_us.empty()) return 0;
  if (result.point.method == Method::vllm) return median(result.samples_us.front());
  double slowest = 0;
  for (std::size_t rank = 0; rank < result.samples_us.size(); ++rank) {
    const double baseline = result.baseline_us.empty() ? 0 : median(result.baseline_us[rank]);
    slowest = std::max(slowest, median(result.samples_us[rank]) - baseline);
  }
  return slowest;
}

void append(Result& result, const Result& more) {
  const auto add = [](std::vector<std::vector<double>>& to, const std::vector<std::vector<double>>& from) {
    to.resize(std::max(to.size(), from.size()));
    for (std::size_t rank = 0; rank < from.size(); ++rank)
      to[rank].insert(to[rank].end(), from[rank].begin(), from[rank].end());
  };
  add(result.samples_us, more.samples_us);
  add(result.baseline_us, more.baseline_us);
  if (more.verdict == Verdict::wrong) result.verdict = Verdict::wrong;
  if (result.detail.empty()) result.detail = more.detail;
  result.us = operation_us(result);
}

std::string chosen_algorithm(const Group& group) {
  const auto calls = group.recent_calls();
  if (calls.empty()) return {};
  for (const auto algorithm : {Algorithm::multimem_one_shot, Algorithm::multimem_two_shot, Algorithm::one_shot,
                               Algorithm::two_shot, Algorithm::bulk, Algorithm::nccl})
    if (calls.back().operation.find(name(algorithm)) != std::string::npos) return std::string(name(algorithm));
  return {};
}

}  // namespace weft::cli
