#include "bench/layer_figures.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace weft::cli {

double LayerRow::us(TimedPart part, const LayerWay& way) const {
  for (const TimedLayer& one : timed) {
    if (one.part == part && one.way == way) return one.figure.us;
  }
  return 0;
}

double LayerRow::fastest_plain() const {
  double least = 0;
  for (const TimedLayer& one : timed) {
    if (one.part != TimedPart::layer || one.way.schedule != LayerSchedule::plain) continue;
    if (least == 0 || one.figure.us < least) least = one.figure.us;
  }
  return least;
}

std::string_view schedule_of(const LayerWay& way) {
  return way.peo != 0 ? "peo" : name(way.schedule);
}
std::string method_of(const LayerWay& way) {
  return way.peo != 0 ? fmt::format("peo, method {}", way.peo) : std::string(schedule_of(way));
}

std::string in_words(const LayerWay& way) {
  std::string text{name(way.schedule)};
  const bool divided = way.schedule == LayerSchedule::rounds || way.schedule == LayerSchedule::combine_rounds;
  if (divided) text += fmt::format(", {} rounds", way.rounds);
  if (way.sms != 0) text += fmt::format(", {} SMs", way.sms);
  return text + fmt::format(", by {}", name(way.path));
}

std::string in_words(const detail::LayerStep& step) {
  std::string text{name(step.schedule)};
  if (step.schedule != LayerSchedule::plain) {
    text += step.experts.empty() ? fmt::format(", {} rounds", step.rounds)
                                 : fmt::format(", rounds of {} experts", fmt::join(step.experts, ", "));
  }
  const int sms = std::max({step.sms.send, step.sms.recv, step.sms.combine_send});
  return sms != 0 ? text + fmt::format(", {} SMs", sms) : text;
}

bool divides_all(const LayerWay& way) {
  return way.schedule == LayerSchedule::rounds && way.peo == 0;
}

double ideal_us(const LayerRow& row, const LayerWay& way) {
  if (!divides_all(way)) return 0;
  LayerWay of_experts = way;
  of_experts.path = RowPath::slots;  // they send nothing
  const double exchange = row.us(TimedPart::exchange, {LayerSchedule::plain, 1, way.sms, way.path});
  const double experts = row.us(TimedPart::experts, of_experts);
  if (exchange == 0 || experts == 0) return 0;
  const double first_and_last = exchange / way.rounds;
  return std::max(experts, exchange - first_and_last) + first_and_last;
}

}  // namespace weft::cli
