// What a model's layers communicate beside all-reduces, for the main job: the gather and scatter of data-parallel
// attention, and the dispatch and combine of experts on different ranks.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "bench/bench_options.hpp"
#include "bench/moe_measure.hpp"

namespace weft::cli {

struct LayerResults {
  std::vector<Result> gathers;
  std::vector<MoeResult> exchanges;
  std::vector<std::string> notes;  // what is missing, and why

  bool correct() const { return all_correct(gathers) && all_correct(exchanges); }
};

// `batches`: tokens of a forward pass, which the ranks share. It may leave the ranks unusable.
LayerResults measure_layers(Ranks& ranks, const ModelShape& shape, const std::vector<std::int64_t>& batches,
                            const BenchOptions& options);

Table layer_table(const ModelShape& shape, const LayerResults& results, const Crowd& crowd);

}  // namespace weft::cli
