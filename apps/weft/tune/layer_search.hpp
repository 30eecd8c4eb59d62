// The search of `weft tune` for layers of experts: schedule, rounds and processors for each number of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bench/layer_measure.hpp"
#include "common/progress.hpp"
#include "tune/tune_state.hpp"
#include "tuning/tuning.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// The choice for a number of tokens.
struct TunedLayer {
  std::uint32_t tokens = 0;
  detail::LayerStep step = {};
  Figure time = {}, before = {};  // as TunedSize has them
  bool as_before = false;
};

// The ways that are tried: one part after the other, and each schedule with even and uneven rounds and with some
// numbers of processors. `processors`: of the GPU; 0: a CPU, whose parts have one each.
std::vector<LayerWay> layer_ways(std::uint32_t local_experts, int processors, bool quick);

// The query of a search: tokens of each rank, and the step that serves them now.
struct LayerQuery {
  std::uint32_t tokens = 0;
  detail::LayerStep present = {};
  std::vector<LayerWay> ways = {};
  int processors = 0, samples = 7;
};
// µs; null: the present choice. Turns count from 1.
using LayerTime = std::function<double(const LayerWay* way, int samples, int turn)>;
// The fastest way takes turns with the present one, which stays unless it is slower by more than their spread.
TunedLayer tune_layer(const LayerQuery& query, const LayerTime& time);

// `tuned` must ascend, and is not empty. Boundaries are round numbers near the middle. Fewer tokens than the least and
// more than the most keep their steps of `base`.
std::vector<detail::LayerStep> layer_steps_of(const std::vector<TunedLayer>& tuned,
                                              std::span<const detail::LayerStep> base);

class LayerSearch {
 public:
  struct Args {
    ModelShape model = {};
    std::int64_t intermediate = 0;           // 0: the model's
    std::vector<std::uint32_t> tokens = {};  // ascending
    bool quick = false;
    int samples = 7;
  };
  // Throws Errc::invalid_argument for layers that cannot be measured.
  LayerSearch(Ranks& ranks, const Args& args);

  const std::vector<std::uint32_t>& tokens() const { return args_.tokens; }
  const LayerShape& shape() const { return shape_; }
  bool measured() const { return measured_; }
  // Its processor, ranks, operation and size.
  detail::TuningTable table() const;
  // The steps of the table in use.
  std::vector<detail::LayerStep> steps_now() const;
  void tune(Progress& progress, TuneState& known, std::uint32_t tokens);
  // The choices so far; or those of all tokens, of which the ones that are left have their step of `base`.
  std::vector<TunedLayer> tuned() const;
  std::vector<TunedLayer> with_left(std::span<const detail::LayerStep> base) const;

 private:
  Result measure(const Trial& trial, const LayerWay& way);
  int processors() const;

  Ranks& ranks_;
  Args args_;
  LayerShape shape_;
  bool measured_ = false;
  std::uint32_t uploaded_ = 0;  // tokens whose tensors the ranks have
  struct Opened {
    std::unique_ptr<LayerRank> rank;
    LayerOutputs plain;
  };
  std::vector<Opened> opened_;  // by local index
  std::map<std::uint32_t, TunedLayer> tuned_;
};

}  // namespace weft::cli
