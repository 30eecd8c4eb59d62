#include "bench/layer_trace.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace weft::cli {
namespace {

using Which = LayerPart::Which;
constexpr double kNone = -1;

// Rows of the picture.
enum Lane : std::uint8_t { layer, callers, there, back, shared };
constexpr std::array<std::string_view, 5> kLanes = {"layer", "caller's stream", "dispatch's stream", "combine's stream",
                                                    "shared expert's stream"};

Lane lane_of(Which which) {
  if (which == Which::dispatch_send || which == Which::dispatch_wait) return there;
  if (which == Which::combine_send || which == Which::combine_wait) return back;
  if (which == Which::shared) return shared;
  return callers;
}

bool has_rounds(Which which) {
  return which != Which::dispatch && which != Which::dispatch_send && which != Which::combine &&
         which != Which::combine_wait && which != Which::shared;
}

std::string in_words(const TracedPart& part) {
  std::string text{weft::name(part.which)};
  if (has_rounds(part.which)) text += " " + std::to_string(part.round);
  return text;
}

}  // namespace

std::vector<double> as_numbers(const std::vector<TracedPart>& parts, std::uint32_t rounds) {
  constexpr std::size_t kOfAll = 4, kOfRound = 5;  // parts at most
  std::vector<double> numbers;
  for (const TracedPart& part : parts)
    numbers.insert(numbers.end(),
                   {static_cast<double>(part.which), static_cast<double>(part.round), part.begin, part.end});
  numbers.resize(4 * (kOfAll + kOfRound * rounds), kNone);
  return numbers;
}

std::vector<TracedPart> from_numbers(const std::vector<double>& numbers) {
  std::vector<TracedPart> parts;
  for (std::size_t i = 0; i + 4 <= numbers.size() && numbers[i] != kNone; i += 4)
    parts.push_back({static_cast<Which>(static_cast<int>(numbers[i])), static_cast<std::uint32_t>(numbers[i + 1]),
                     numbers[i + 2], numbers[i + 3]});
  return parts;
}

nlohmann::json to_json(const std::vector<LayerTrace>& layers) {
  nlohmann::json all = nlohmann::json::array();
  for (const LayerTrace& trace : layers) {
    all.push_back({{"title", trace.title}, {"ranks", nlohmann::json::array()}});
    for (const std::vector<TracedPart>& rank : trace.ranks) {
      nlohmann::json parts = nlohmann::json::array();
      for (const TracedPart& part : rank)
        parts.push_back({{"part", in_words(part)},
                         {"lane", kLanes[lane_of(part.which)]},
                         {"begin_us", part.begin},
                         {"end_us", part.end}});
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
        add(in_words(part), lane_of(part.which), part.begin, part.end);
        end = std::max(end, part.end);
      }
      add(trace.title, layer, 0, end);
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
