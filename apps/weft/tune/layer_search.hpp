// The searches of `weft tune` for layers of experts: schedule, rounds and processors for each number of tokens, with
// rows by slots and by the ring.
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
// A way in rounds, with some numbers for what receives rows beside the experts, and others for what sends sums.
std::vector<LayerWay> ways_apart(const LayerWay& way, int processors);
// The way of a step. Numbers of processors that no call could have here are the most that one can.
LayerWay way_of(const detail::LayerStep& step, RowPath path, int most_blocks, int processors);

// The query of a search: tokens of each rank, and the step that serves them now.
struct LayerQuery {
  std::uint32_t tokens = 0;
  detail::LayerStep present = {};
  std::vector<LayerWay> ways = {};
  int processors = 0, samples = 7;
  bool apart = true;  // also tries the fastest way in rounds by ways_apart(), if it may win
};
// µs; null: the present choice. Turns count from 1.
using LayerTime = std::function<double(const LayerWay* way, int samples, int turn)>;
// The fastest way takes turns with the present one, which stays unless it is slower by more than their spread.
TunedLayer tune_layer(const LayerQuery& query, const LayerTime& time);

// The ranks' layers, which searches share.
class OpenedLayers {
 public:
  OpenedLayers(Ranks& ranks, const LayerShape& shape, std::uint32_t most_tokens);
  const LayerShape& shape() const { return shape_; }
  Result measure(const Trial& trial, const LayerWay& way);

 private:
  Ranks& ranks_;
  LayerShape shape_;
  std::uint32_t most_tokens_;
  std::uint32_t uploaded_ = 0;  // tokens whose tensors the ranks have
  struct Opened {
    std::unique_ptr<LayerRank> rank;
    LayerOutputs plain;
  };
  std::vector<Opened> opened_;  // by local index
};

// With rows that go one way.
class LayerSearch : public LayerSteps {
 public:
  struct Args {
    std::vector<std::uint32_t> tokens = {};  // ascending
    RowPath path = RowPath::slots;
    bool quick = false;
    int samples = 7;
  };
  LayerSearch(Ranks& ranks, std::shared_ptr<OpenedLayers> layers, const Args& args);

  detail::TuningTable table() const override;
  std::string size_json() const override;
  void tune(Progress& progress, TuneState& known, std::uint32_t tokens) override;
  RowPath path() const override { return args_.path; }
  std::string remark() const override;

 private:
  Words words() const override;
  std::string step_in_words(const detail::LayerStep& step) const override;
  std::vector<detail::LayerStep> steps_now() const override;
  const LayerShape& shape() const { return layers_->shape(); }
  int table_ranks() const;
  int processors() const;

  Args args_;
  std::shared_ptr<OpenedLayers> layers_;
};

struct LayerSearchArgs {
  ModelShape model = {};
  std::int64_t intermediate = 0;           // 0: the model's
  std::uint32_t emulated = 0;              // ranks of a larger parallelism, whose table is made; 0: of these ranks
  RowPath path = RowPath::automatic;       // automatic: a search for each way
  std::vector<std::uint32_t> tokens = {};  // ascending
  bool quick = false;
  int samples = 7;
};
// Throws Errc::invalid_argument for layers that cannot be measured. Numbers of tokens without slots are left out there.
std::vector<std::unique_ptr<TokenSearch>> open_layer_searches(Ranks& ranks, const LayerSearchArgs& args);

}  // namespace weft::cli
