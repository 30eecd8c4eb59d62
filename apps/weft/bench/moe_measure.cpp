#include "bench/moe_measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace weft::cli {
namespace {

struct How {
  int samples = 1;
  MoeParts parts = {};
};

// Returns the first thing that is wrong, or an empty string.
std::string measure_moe(Ranks::Seat& seat, MoeRank& rank, const MoeTraffic& traffic, const How& how,
                        MoeResult& result) {
  const auto dispatch = [&](int input) {
    return rank.dispatch(result.tokens, {result.launch, how.parts.apart, how.parts.rounds, input});
  };
  const auto combine = [&](const DispatchHandle& of, int input) {
    rank.combine(of, {result.launch, how.parts.apart, how.parts.rounds, input});
  };
  seat.barrier();  // uploads and checks take long
  const DispatchHandle handle = dispatch(0);
  const std::function<void(int)> operations[] = {[&](int input) { dispatch(input); },
                                                 [&](int input) { combine(handle, input); },
                                                 [&](int input) { combine(dispatch(input), input); }};
  std::string wrong;
  // Combine alone is measured first: another dispatch must not take its handle.
  for (const int i : {1, 0, 2}) {
    seat.barrier();  // a call does not wait for a rank that still checks the call before
    rank.device().run(seat, [&] { operations[i](0); });
    seat.barrier();
    auto all = seat.gather(rank.device().time(
        seat, {.method = result.method, .samples = how.samples, .operation = operations[i], .poison = [&] {
                 rank.clear();
               }}));
    if (seat.local_index() == 0) result.samples[i] = std::move(all);
    std::string found = i != 1 ? rank.check_dispatch(traffic) : std::string();
    if (i != 0 && found.empty()) found = rank.check_combine(traffic);
    if (wrong.empty() && !found.empty()) wrong = fmt::format("{}: rank {}: {}", kMoeOperations[i], seat.rank(), found);
  }
  return wrong;
}

nlohmann::json point_of(const MoeResult& result, std::size_t operation) {
  const Figure figure = figure_of(result.samples[operation]);
  nlohmann::json point = {{"operation", kMoeOperations[operation]},
                          {"tokens", result.tokens},
                          {"contender", name(Contender::automatic)},
                          {"blocks", result.launch.blocks},
                          {"threads", result.launch.threads},
                          {"wire_rows", result.wire_rows},
                          {"wire_bytes", result.wire_bytes[operation]},
                          {"logical_rows", result.logical_rows},
                          {"verdict", result.wrong.empty() ? "ok" : "wrong"},
                          {"us", result.us[operation]},
                          {"us_min", figure.least},
                          {"us_max", figure.most},
                          {"samples_us", result.samples[operation]}};
  if (!result.wrong.empty()) point["detail"] = result.wrong;
  if (!result.chosen.empty()) point["chosen"] = result.chosen;
  if (operation >= std::size(result.moved_bytes)) return point;
  point["moved_bytes"] = result.moved_bytes[operation];
  const double bound = bound_us(result.bounds, operation, result.moved_bytes[operation]);
  if (bound > 0) point["bound_us"] = bound;
  return point;
}

nlohmann::json point_of(const MoeRival& rival) {
  const Result& result = rival.result;
  const Figure figure = figure_of(result);
  nlohmann::json point = {{"operation", kMoeOperations[rival.operation]},
                          {"tokens", result.point.rows},
                          {"contender", name(rival)},
                          {"blocks", result.point.launch.blocks},
                          {"threads", result.point.launch.threads},
                          {"verdict", name(result.verdict)},
                          {"us", result.us},
                          {"us_min", figure.least},
                          {"us_max", figure.most},
                          {"samples_us", result.samples_us}};
  if (rival.wire_bytes > 0) point["wire_bytes"] = rival.wire_bytes;
  if (rival.moved_bytes > 0) point["moved_bytes"] = rival.moved_bytes;
  if (!result.detail.empty()) point["detail"] = result.detail;
  return point;
}

}  // namespace

std::vector<const MoeRival*> rivals_of(const std::vector<MoeResult>& results) {
  std::vector<const MoeRival*> all;
  std::set<std::uint32_t> seen;
  for (const MoeResult& result : results) {
    const bool first = seen.insert(result.tokens).second;
    for (const MoeRival& peer : result.peers)
      if (first) all.push_back(&peer);
    for (const MoeRival& bound : result.bounds) all.push_back(&bound);
  }
  return all;
}

nlohmann::json to_json(const std::vector<MoeResult>& results) {
  nlohmann::json points = nlohmann::json::array();
  for (const MoeResult& result : results)
    for (std::size_t i = 0; i < kMoeOperations.size(); ++i) points.push_back(point_of(result, i));
  for (const MoeRival* rival : rivals_of(results)) points.push_back(point_of(*rival));
  return points;
}

std::vector<std::string> wrong_of(const std::vector<MoeResult>& results) {
  std::vector<std::string> all;
  for (const MoeResult& result : results)
    if (!result.wrong.empty()) all.push_back(result.wrong);
  for (const MoeRival* rival : rivals_of(results)) {
    if (rival->result.verdict == Verdict::wrong)
      all.push_back(fmt::format("{} of {}: {}", kMoeOperations[rival->operation], name(*rival), rival->result.detail));
  }
  return all;
}

MoeMeasurement::MoeMeasurement(Ranks& ranks, const MoeExchangeArgs& args, MoeParts parts)
    : ranks_(ranks), parts_(parts), opened_(static_cast<std::size_t>(ranks.local_size())) {
  ranks_.each([&](Ranks::Seat& seat) {
    opened_[static_cast<std::size_t>(seat.local_index())] = std::make_unique<MoeRank>(ranks_, seat, args);
  });
}

MoeMeasurement::~MoeMeasurement() = default;

std::vector<MoeResult> MoeMeasurement::run(const MoeRun& run) {
  const MoeTraffic& traffic = run.traffic;
  MoeResult empty{};
  empty.tokens = traffic.token_count();
  empty.method = methods_of(ranks_.device()).front();
  empty.wire_rows = traffic.wire_rows();
  empty.logical_rows = traffic.logical_rows();
  empty.wire_bytes[0] = traffic.dispatch_wire_bytes();
  empty.wire_bytes[1] = traffic.combine_wire_bytes();
  empty.wire_bytes[2] = empty.wire_bytes[0] + empty.wire_bytes[1];
  empty.moved_bytes[0] = traffic.dispatch_moved_bytes();
  empty.moved_bytes[1] = traffic.combine_moved_bytes();
  std::vector<MoeResult> results(run.launches.size(), empty);
  std::vector<std::vector<std::string>> wrong(opened_.size(), std::vector<std::string>(results.size()));
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    MoeRank& rank = *opened_[index];
    rank.upload(traffic);
    for (std::size_t i = 0; i < results.size(); ++i) {
      MoeResult other = empty;
      MoeResult& mine = index == 0 ? results[i] : other;
      mine.launch = run.launches[i];
      wrong[index][i] = measure_moe(seat, rank, traffic, {.samples = run.samples, .parts = parts_}, mine);
    }
  });
  for (std::size_t i = 0; i < results.size(); ++i) {
    MoeResult& result = results[i];
    for (const auto& details : wrong)
      if (result.wrong.empty()) result.wrong = details[i];
    for (std::size_t o = 0; o < kMoeOperations.size(); ++o) result.us[o] = figure_of(result.samples[o]).us;
  }
  return results;
}

}  // namespace weft::cli
