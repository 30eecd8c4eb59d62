// Communication of a model's layers besides all-reduces, for `weft bench`: the gather and scatter of data-parallel
// attention, and the dispatch and combine of experts on different ranks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "bench/model_ways.hpp"
#include "bench/moe_measure.hpp"

namespace weft::cli {

struct LayerResults {
  std::vector<Result> gathers;  // and scatters, of all ranks and of attention groups
  std::vector<MoeResult> exchanges;
  std::vector<std::string> notes;  // each missing measurement and the reason

  bool correct() const { return all_correct(gathers) && all_correct(exchanges); }
};

// The calls that some way makes are measured, with these tokens of a forward pass.
struct LayerForm {
  const ModelShape& shape;
  const ModelLayout& parallel;
  const std::vector<std::int64_t>& batches;
  const BenchOptions& options;
};
// The ranks may be unusable afterwards.
LayerResults measure_layers(Ranks& ranks, const LayerForm& form);

Table layer_table(const ModelShape& shape, const LayerResults& results, const Crowd& crowd);

// The times of a forward pass of `tokens`: of all-reduces of these tokens, and of what a layer's groups and ranks have
// of them.
StepTimes step_times(const std::vector<Result>& all_reduces, const LayerResults& layers, const ParallelLayout& layout,
                     std::int64_t tokens);

}  // namespace weft::cli
