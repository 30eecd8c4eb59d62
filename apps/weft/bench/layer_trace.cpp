#include "bench/layer_trace.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace weft::cli {
namespace {

using Which = LayerPart::Which;
constexpr double kNone = -1;

constexpr std::array<std::string_view, 6> kLanes = {"layer",
                                                    "caller's stream",
                                                    "dispatch's stream",
                                                    "stream of dispatch's waits",
                                                    "combine's stream",
                                                    "shared expert's stream"};
std::string_view name(Lane lane) {
  return kLanes[static_cast<std::size_t>(lane)];
}

Lane lane_of(Which which, std::uint32_t peo) {
  if (which == Which::dispatch_wait && peo == 3) return Lane::taking;
  if (which == Which::dispatch_send || which == Which::dispatch_wait) return Lane::there;
  if (which == Which::combine_send || which == Which::combine_wait) return Lane::back;
  if (which == Which::shared) return Lane::shared;
  return Lane::callers;
}

bool has_rounds(Which which) {
  return which != Which::dispatch && which != Which::dispatch_send && which != Which::combine &&
         which != Which::combine_wait && which != Which::shared;
}

std::string in_words(const TracedPart& part) {
  std::string text{weft::name(part.which)};
  if (part.round >= 0) text += " " + std::to_string(part.round);
  return text;
}

constexpr std::size_t kNumbers = 5;  // of a part

}  // namespace

TracedPart traced(const LayerPart& part, std::uint32_t peo) {
  const bool of_round = part.which != Which::shared && (peo != 0 || has_rounds(part.which));
  return {.which = part.which, .round = of_round ? static_cast<int>(part.round) : -1, .lane = lane_of(part.which, peo)};
}

std::vector<double> as_numbers(const std::vector<TracedPart>& parts, std::uint32_t rounds) {
  constexpr std::size_t kOfAll = 4, kOfRound = 7;  // parts at most
  std::vector<double> numbers;
  for (const TracedPart& part : parts)
    numbers.insert(numbers.end(), {static_cast<double>(part.which), static_cast<double>(part.round),
                                   static_cast<double>(part.lane), part.begin, part.end});
  numbers.resize(kNumbers * (kOfAll + kOfRound * rounds), kNone);
  return numbers;
}

std::vector<TracedPart> from_numbers(const std::vector<double>& numbers) {
  std::vector<TracedPart> parts;
  for (std::size_t i = 0; i + kNumbers <= numbers.size() && numbers[i] != kNone; i += kNumbers)
    parts.push_back({static_cast<Which>(static_cast<int>(numbers[i])), static_cast<int>(numbers[i + 1]),
                     static_cast<Lane>(static_cast<int>(numbers[i + 2])), numbers[i + 3], numbers[i + 4]});
  return parts;
}

nlohmann::json to_json(const std::vector<LayerTrace>& layers) {
  nlohmann::json all = nlohmann::json::array();
  for (const LayerTrace& trace : layers) {
    all.push_back({{"title", trace.title}, {"ranks", nlohmann::json::array()}});
    for (const std::vector<TracedPart>& rank : trace.ranks) {
      nlohmann::json parts = nlohmann::json::array();
      for (const TracedPart& part : rank)
        parts.push_back(
            {{"part", in_words(part)}, {"lane", name(part.lane)}, {"begin_us", part.begin}, {"end_us", part.end}});
      all.back()["ranks"].push_back(std::move(parts));
    }
  }
  return all;
}

nlohmann::json trace_events(const std::vector<LayerTrace>& layers) {
  nlohmann::json events = nlohmann::json::array();
  std::size_t ranks = 0;
  double begin = 0;  // of a layer
  for (const LayerTrace& trace : layers) {
    ranks = std::max(ranks, trace.ranks.size());
    double longest = 0;
    for (std::size_t rank = 0; rank < trace.ranks.size(); ++rank) {
      const auto add = [&](const std::string& name, Lane lane, double from, double until) {
        events.push_back({{"name", name},
                          {"ph", "X"},
                          {"pid", rank},
                          {"tid", static_cast<int>(lane)},
                          {"ts", begin + from},
                          {"dur", until - from}});
      };
      double end = 0;
      for (const TracedPart& part : trace.ranks[rank]) {
        add(in_words(part), part.lane, part.begin, part.end);
        end = std::max(end, part.end);
      }
      add(trace.title, Lane::layer, 0, end);
      longest = std::max(longest, end);
    }
    begin += longest * 1.1;
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    events.push_back(
        {{"name", "process_name"}, {"ph", "M"}, {"pid", rank}, {"args", {{"name", "rank " + std::to_string(rank)}}}});
    for (std::size_t lane = 0; lane < kLanes.size(); ++lane)
      events.push_back(
          {{"name", "thread_name"}, {"ph", "M"}, {"pid", rank}, {"tid", lane}, {"args", {{"name", kLanes[lane]}}}});
  }
  return {{"displayTimeUnit", "ns"}, {"traceEvents", events}};
}

}  // namespace weft::cli
