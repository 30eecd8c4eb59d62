// The parts of a layer that `weft bench moe-layer` times, and figures of their times.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/columns_file.hpp"
#include "bench/layer_measure.hpp"
#include "bench/layer_rank.hpp"
#include "bench/layer_trace.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct TimedLayer {
  TimedPart part;
  LayerWay way;
  std::vector<std::vector<double>> samples = {};  // [rank][sample]
  Figure figure = {};
  std::string chosen = {};  // by the layer's table, if the schedule is automatic
};

// All that is timed for one number of tokens.
struct LayerRow {
  std::uint32_t tokens = 0, virtual_tokens = 0;
  double rows_per_expert = 0;
  GemmTile tile = GemmTile::automatic;  // on GPUs, that of the GEMMs
  std::vector<TimedLayer> timed = {};
  std::string wrong = {};
  std::vector<LayerTrace> traces = {};   // if they are asked for
  std::vector<ColumnPoint> others = {};  // from a file

  double us(TimedPart part, const LayerWay& way) const;
};

// "rounds", or "peo"; the latter with its overlap method.
std::string_view schedule_of(const LayerWay& way);
std::string method_of(const LayerWay& way);
// "2", or "1:3:3:1" of so many experts.
std::string rounds_of(const LayerWay& way);
// "rounds, 2 rounds, 16 SMs, by slots".
std::string in_words(const LayerWay& way);
// "rounds, [1, 6, 1] experts, 16 SMs".
std::string in_words(const detail::LayerStep& step);

// The way whose last round has one expert of a rank's `local` ones.
LayerWay last_expert(std::uint32_t local, RowPath path);
// The ways by which parts are timed that several ways share: dispatches and combines of peo's rounds; and experts of a
// way, which send nothing.
LayerWay of_any_method(LayerWay peo);
LayerWay way_of_experts(LayerWay way);

// µs of a layer that hides all that its schedule can hide, from parts that were timed alone. D and C: dispatch and
// combine. E: the experts. U: the up GEMM and the activation. W: the down GEMM. D₁: dispatch of the first round's rows.
// C₁: combine of the last one's. Alone, D₁ and C₁ have all processors. The rest of D and C has those of the way.
//   rounds           D₁ + max(E, (D − D₁) + (C − C₁)) + C₁
//   combine-rounds   D + U + max(W, C − C₁) + C₁
//   peo              as rounds; D and C are the dispatches and combines of its rounds.
// The part of a shared expert's time that the dispatch in front of the max does not hide is part of E or W. 0 for other
// schedules, and where a term was not timed.
double ideal_us(const LayerRow& row, const LayerWay& way);
// The ideal of signals instead of rounds: max(E, D + C) + C₁, with the last expert's rows in C₁, and experts undivided.
// All of a shared expert is part of E.
double signals_ideal_us(const LayerRow& row, RowPath path, std::uint32_t local);
// µs of a plain layer, less those of dispatch + combine and of the experts, each timed alone; and less the shared
// expert's, or what it takes beyond the dispatch beside it.
double over_parts_us(const LayerRow& row, const TimedLayer& plain);

// The fastest way of each schedule.
std::vector<const TimedLayer*> best_ways(const LayerRow& row);
// µs of the fastest way of a schedule, as schedule_of() names it; 0: there is none.
double fastest_of(const LayerRow& row, std::string_view schedule);
// µs of Weft for what a column of a file shows: the fastest layer of all, or the part alone on all processors by its
// fastest path. 0 if nothing of it was timed.
double fastest_operation(const LayerRow& row, std::string_view operation);

}  // namespace weft::cli
