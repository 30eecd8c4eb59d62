// The search of `weft tune` for layers of experts: schedule, rounds and processors for each number of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "bench/layer_measure.hpp"
#include "tune/token_search.hpp"
#include "tuning/tuning.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

using TunedLayer = TunedTokens<detail::LayerStep>;

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

class LayerSearch : public LayerSteps {
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

  detail::TuningTable table() const override;
  std::string size_json() const override;
  void tune(Progress& progress, TuneState& known, std::uint32_t tokens) override;

 private:
  Words words() const override;
  std::string step_in_words(const detail::LayerStep& step) const override;
  std::vector<detail::LayerStep> steps_now() const override;
  Result measure(const Trial& trial, const LayerWay& way);
  int processors() const;

  Args args_;
  LayerShape shape_;
  std::uint32_t uploaded_ = 0;  // tokens whose tensors the ranks have
  struct Opened {
    std::unique_ptr<LayerRank> rank;
    LayerOutputs plain;
  };
  std::vector<Opened> opened_;  // by local index
};

}  // namespace weft::cli
