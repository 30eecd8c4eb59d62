#include "workloads/measure.hpp"

namespace weft::cli {

Figure figure_of(const std::vector<std::vector<double>>& samples, const std::vector<std::vector<double>>& baseline) {
  Figure slowest;
  for (std::size_t rank = 0; rank < samples.size(); ++rank) {
    if (samples[rank].empty()) continue;
    const double off = baseline.empty() ? 0 : median(baseline[rank]);
    const auto [least, most] = std::ranges::minmax(samples[rank]);
    const Figure mine{
        .us = median(samples[rank]) - off, .least = least - off, .most = most - off, .samples = samples[rank].size()};
    if (slowest.samples == 0 || mine.us > slowest.us) slowest = mine;
  }
  slowest.us = std::max(slowest.us, 0.0);
  return slowest;
}

Figure figure_of(const Result& result) {
  // Only the clock of rank 0 counts.
  if (result.point.method == Method::vllm && !result.samples_us.empty()) return figure_of({result.samples_us.front()});
  return figure_of(result.samples_us, result.baseline_us);
}

double operation_us(const Result& result) {
  return figure_of(result).us;
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
                               Algorithm::two_shot, Algorithm::pipelined, Algorithm::nccl})
    if (calls.back().operation.find(name(algorithm)) != std::string::npos) return std::string(name(algorithm));
  return {};
}

}  // namespace weft::cli
