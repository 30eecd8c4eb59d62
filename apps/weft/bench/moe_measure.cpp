#include "bench/moe_measure.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace weft::cli {
namespace {

void measure_moe(Ranks::Seat& seat, MoeRank& rank, const MoeTraffic& traffic, int samples, Launch launch, bool apart,
                 MoeResult& result, std::string& wrong) {
  rank.upload(traffic);
  const auto dispatch = [&](int input) {
    return rank.dispatch(result.tokens, {.launch = launch, .apart = apart, .input = input});
  };
  const auto combine = [&](const DispatchHandle& of, int input) {
    rank.combine(of, {.launch = launch, .apart = apart, .input = input});
  };
  const DispatchHandle handle = dispatch(0);
  const std::function<void(int)> operations[] = {[&](int input) { dispatch(input); },
                                                 [&](int input) { combine(handle, input); },
                                                 [&](int input) { combine(dispatch(input), input); }};
  // Combine alone is measured first: another dispatch must not take its handle.
  for (const int i : {1, 0, 2}) {
    seat.barrier();  // a call does not wait for a rank that still checks the call before
    rank.device().run(seat, [&] { operations[i](0); });
    seat.barrier();
    auto all = seat.gather(rank.device().time(
        seat,
        {.method = result.method, .samples = samples, .operation = operations[i], .poison = [&] { rank.clear(); }}));
    if (seat.local_index() == 0) result.samples[i] = std::move(all);
    std::string found = i != 1 ? rank.check_dispatch(traffic) : std::string();
    if (i != 0 && found.empty()) found = rank.check_combine(traffic);
    if (wrong.empty() && !found.empty()) wrong = fmt::format("{}: rank {}: {}", kMoeOperations[i], seat.rank(), found);
  }
}

}  // namespace

nlohmann::json to_json(const std::vector<MoeResult>& results) {
  nlohmann::json points = nlohmann::json::array();
  for (const MoeResult& result : results) {
    for (std::size_t i = 0; i < kMoeOperations.size(); ++i) {
      const Figure figure = figure_of(result.samples[i]);
      points.push_back({{"operation", kMoeOperations[i]},
                        {"tokens", result.tokens},
                        {"contender", name(Contender::automatic)},
                        {"blocks", result.launch.blocks},
                        {"threads", result.launch.threads},
                        {"wire_rows", result.wire_rows},
                        {"wire_bytes", result.wire_bytes[i]},
                        {"logical_rows", result.logical_rows},
                        {"verdict", result.wrong.empty() ? "ok" : "wrong"},
                        {"us", result.us[i]},
                        {"us_min", figure.least},
                        {"us_max", figure.most},
                        {"samples_us", result.samples[i]}});
      if (!result.wrong.empty()) points.back()["detail"] = result.wrong;
    }
  }
  return points;
}

bool all_correct(const std::vector<MoeResult>& results) {
  return std::all_of(results.begin(), results.end(), [](const MoeResult& r) { return r.wrong.empty(); });
}

MoeMeasurement::MoeMeasurement(Ranks& ranks, const MoeExchangeArgs& args, bool apart)
    : ranks_(ranks), apart_(apart), opened_(static_cast<std::size_t>(ranks.local_size())) {
  ranks_.each([&](Ranks::Seat& seat) {
    opened_[static_cast<std::size_t>(seat.local_index())] = std::make_unique<MoeRank>(ranks_, seat, args);
  });
}

MoeMeasurement::~MoeMeasurement() = default;

MoeResult MoeMeasurement::run(const MoeTraffic& traffic, std::uint32_t tokens, int samples, Launch launch) {
  MoeResult result{};
  result.tokens = tokens;
  result.method = methods_of(ranks_.device()).front();
  result.launch = launch;
  result.wire_rows = traffic.wire_rows();
  result.logical_rows = traffic.logical_rows();
  result.wire_bytes[0] = traffic.dispatch_wire_bytes();
  result.wire_bytes[1] = traffic.combine_wire_bytes();
  result.wire_bytes[2] = result.wire_bytes[0] + result.wire_bytes[1];
  std::vector<std::string> wrong(opened_.size());
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    MoeResult other = result;
    measure_moe(seat, *opened_[index], traffic, samples, launch, apart_, index == 0 ? result : other, wrong[index]);
  });
  for (const std::string& detail : wrong) {
    if (result.wrong.empty()) result.wrong = detail;
  }
  for (std::size_t i = 0; i < kMoeOperations.size(); ++i) result.us[i] = figure_of(result.samples[i]).us;
  return result;
}

}  // namespace weft::cli
