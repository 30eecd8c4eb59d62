#include "workloads/speed_up.hpp"

#include <fmt/format.h>

namespace weft::cli {

namespace {

// The fastest right result that `wanted` accepts, for the same operation, size and method.
template <class Wanted>
const Result* best_of(const std::vector<Result>& results, const Point& point, Wanted wanted) {
  const Result* best = nullptr;
  for (const Result& other : results) {
    const Point& of = other.point;
    if (!wanted(of) || other.verdict != Verdict::ok || of.method != point.method) continue;
    if (of.operation != point.operation || of.load != point.load || of.bytes() != point.bytes()) continue;
    if (best == nullptr || other.us < best->us) best = &other;
  }
  return best;
}

}  // namespace

const Result* best_peer(const std::vector<Result>& results, const Point& point) {
  return best_of(results, point, [](const Point& of) { return is_peer(of.contender); });
}

SpeedUp speed_up(const Result& ours, const Result* peer, const Crowd& crowd) {
  if (ours.verdict != Verdict::ok) return {.why_none = "Weft has no right result"};
  if (peer == nullptr) return {.why_none = "no peer was measured"};
  if (ours.point.bytes() == 0 && ours.point.operation != Operation::barrier) return {.why_none = "nothing is moved"};
  if (crowd.crowded()) return {.why_none = fmt::format("{} threads share {:.3g} cores", crowd.threads(), crowd.cores)};
  if (ours.us <= 0) return {.why_none = "no time was taken"};
  return {.ratio = peer->us / ours.us};
}

SpeedUp symmetric_speed_up(const std::vector<Result>& results, const Point& point, const Crowd& crowd) {
  const Result* ours = best_of(results, point, [&](const Point& of) {
    return of.contender == Contender::symmetric && of.padding == point.padding;
  });
  const Result* peer =
      best_of(results, point, [](const Point& of) { return of.contender == Contender::nccl_symmetric; });
  if (ours == nullptr) return {.why_none = "no outputs in symmetric memory were measured"};
  return speed_up(*ours, peer, crowd);
}

std::string cell(const SpeedUp& speed_up) {
  return speed_up.ratio ? fmt::format("{:.2f}", *speed_up.ratio) : "-";
}

}  // namespace weft::cli
