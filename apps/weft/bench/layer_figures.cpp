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

std::string_view schedule_of(const LayerWay& way) {
  return way.peo != 0 ? "peo" : name(way.schedule);
}
std::string method_of(const LayerWay& way) {
  if (way.peo != 0) return fmt::format("peo, method {}", way.peo);
  return std::string(schedule_of(way)) + (way.shared_first ? ", shared first" : "");
}

std::string rounds_of(const LayerWay& way) {
  return way.experts.empty() ? std::to_string(way.rounds) : fmt::format("{}", fmt::join(way.experts, ":"));
}

std::string in_words(const LayerWay& way) {
  std::string text = method_of(way);
  const bool divided = way.schedule == LayerSchedule::rounds || way.schedule == LayerSchedule::combine_rounds;
  if (divided) text += fmt::format(", {} rounds", rounds_of(way));
  if (way.sms != 0) text += fmt::format(", {} SMs", way.sms);
  return text + fmt::format(", by {}", name(way.path));
}

std::string in_words(const detail::LayerStep& step) {
  std::string text{name(step.schedule)};
  if (step.schedule != LayerSchedule::plain) {
    text += step.experts.empty() ? fmt::format(", {} rounds", step.rounds)
                                 : fmt::format(", rounds of {} experts", fmt::join(step.experts, ", "));
  }
  if (step.sms.recv != 0 && step.sms.combine_send != 0 && step.sms.recv != step.sms.combine_send)
    return text + fmt::format(", {} SMs for rows and {} for sums", step.sms.recv, step.sms.combine_send);
  const int sms = std::max({step.sms.send, step.sms.recv, step.sms.combine_send});
  return sms != 0 ? text + fmt::format(", {} SMs", sms) : text;
}

LayerWay last_expert(std::uint32_t local, RowPath path) {
  return {.schedule = LayerSchedule::rounds, .rounds = 2, .path = path, .experts = {local - 1, 1}};
}

LayerWay of_any_method(LayerWay peo) {
  peo.peo = 1;
  return peo;
}

LayerWay way_of_experts(LayerWay way) {
  way.path = RowPath::slots;
  way.peo = way.peo != 0 && way.sms != 0 ? 1 : 0;  // peo leaves more processors
  return way;
}

namespace {

// A sum that is 0 if one of its terms is missing.
class Terms {
 public:
  Terms(const LayerRow& row, RowPath path) : row_(row), path_(path) {}

  // Dispatch or combine, on so many processors.
  double all(TimedPart part, int sms) { return noted(row_.us(part, {.sms = sms, .path = path_})); }
  // The same for the first round's rows, or the last one's.
  double end(TimedPart part, LayerWay way, int sms) {
    if (way.rounds == 1) return all(part == TimedPart::first_dispatch ? TimedPart::dispatch : TimedPart::combine, sms);
    way.schedule = LayerSchedule::rounds;
    way.sms = sms;
    way.peo = 0;
    return noted(row_.us(part, way));
  }
  double gemms(TimedPart part, const LayerWay& way) { return noted(row_.us(part, way_of_experts(way))); }
  // Dispatches or combines of peo's rounds.
  double rounds(TimedPart part, const LayerWay& way) { return noted(row_.us(part, of_any_method(way))); }
  double sum(double of_terms) const { return complete_ ? of_terms + row_.us(TimedPart::sum, {}) : 0; }

 private:
  double noted(double us) {
    complete_ &= us > 0;
    return us;
  }

  const LayerRow& row_;
  RowPath path_;
  bool complete_ = true;
};

}  // namespace

double ideal_us(const LayerRow& row, const LayerWay& way) {
  Terms terms(row, way.path);
  const auto all = [&](TimedPart part, TimedPart of_peo) {
    return way.peo != 0 ? terms.rounds(of_peo, way) : terms.all(part, way.sms);
  };
  const auto beyond = [&](double dispatch) { return std::max(row.us(TimedPart::shared, {}) - dispatch, 0.0); };
  const double last = terms.end(TimedPart::last_combine, way, 0);
  const double of_combine =
      all(TimedPart::combine, TimedPart::combine_rounds) - terms.end(TimedPart::last_combine, way, way.sms);
  if (way.schedule == LayerSchedule::rounds) {
    const double first = terms.end(TimedPart::first_dispatch, way, 0);
    const double of_dispatch =
        all(TimedPart::dispatch, TimedPart::dispatch_rounds) - terms.end(TimedPart::first_dispatch, way, way.sms);
    return terms.sum(first + std::max(terms.gemms(TimedPart::experts, way) + beyond(first), of_dispatch + of_combine) +
                     last);
  }
  if (way.schedule == LayerSchedule::combine_rounds) {
    const double dispatch = terms.all(TimedPart::dispatch, 0);
    return terms.sum(dispatch + terms.gemms(TimedPart::up, {}) +
                     std::max(terms.gemms(TimedPart::down, way) + beyond(dispatch), of_combine) + last);
  }
  return 0;
}

double signals_ideal_us(const LayerRow& row, RowPath path, std::uint32_t local) {
  if (local < 2) return 0;
  Terms terms(row, path);
  const double there_and_back = terms.all(TimedPart::dispatch, 0) + terms.all(TimedPart::combine, 0);
  const double gemms = terms.gemms(TimedPart::experts, {}) + row.us(TimedPart::shared, {});
  return terms.sum(std::max(gemms, there_and_back) + terms.end(TimedPart::last_combine, last_expert(local, path), 0));
}

double over_parts_us(const LayerRow& row, const TimedLayer& plain) {
  const RowPath path = plain.way.path;
  const double beside = plain.way.shared_first ? 0 : row.us(TimedPart::dispatch, {.path = path});
  return plain.figure.us - row.us(TimedPart::exchange, {.path = path}) - row.us(TimedPart::experts, {}) -
         row.us(TimedPart::sum, {}) - std::max(row.us(TimedPart::shared, {}) - beside, 0.0);
}

double fastest_of(const LayerRow& row, std::string_view schedule) {
  for (const TimedLayer* const one : best_ways(row))
    if (schedule_of(one->way) == schedule) return one->figure.us;
  return 0;
}

double fastest_operation(const LayerRow& row, std::string_view operation) {
  double best = 0;
  const std::string_view part = operation == "both" ? name(TimedPart::exchange) : operation;
  for (const TimedLayer& one : row.timed) {
    if (name(one.part) != part || (one.part != TimedPart::layer && one.way.sms != 0)) continue;
    if (best == 0 || one.figure.us < best) best = one.figure.us;
  }
  return best;
}

std::vector<const TimedLayer*> best_ways(const LayerRow& row) {
  std::vector<const TimedLayer*> best;
  for (const TimedLayer& one : row.timed) {
    if (one.part != TimedPart::layer) continue;
    const auto same = [&](const TimedLayer* other) { return schedule_of(other->way) == schedule_of(one.way); };
    const auto found = std::ranges::find_if(best, same);
    if (found == best.end()) {
      best.push_back(&one);
    } else if (one.figure.us < (*found)->figure.us) {
      *found = &one;
    }
  }
  return best;
}

}  // namespace weft::cli
