// Measures ways of a layer, each compared with one part after the other. All functions of ranks are collective.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "bench/layer_rank.hpp"
#include "models/models.hpp"

namespace weft::cli {

// A whole layer, or a part of it alone. Parts of the first round, or of the last one, have its rows alone.
enum class TimedPart : std::uint8_t {
  layer,
  exchange,
  experts,
  dispatch,
  combine,
  first_dispatch,
  last_combine,
  dispatch_rounds,  // of PeoLayer: the dispatch of each round, one behind the other
  combine_rounds,   // likewise
  up,               // and the activation, undivided
  down,
  shared,  // the shared expert
  sum      // of a token's owner, if a larger parallelism is emulated
};
constexpr std::string_view name(TimedPart part) {
  constexpr std::string_view names[] = {"layer",
                                        "dispatch + combine",
                                        "experts",
                                        "dispatch",
                                        "combine",
                                        "dispatch of the first round",
                                        "combine of the last round",
                                        "peo's dispatches",
                                        "peo's combines",
                                        "up GEMM and activation",
                                        "down GEMM",
                                        "shared expert",
                                        "owner's sum"};
  return names[static_cast<int>(part)];
}
constexpr bool sends(TimedPart part) {
  return part != TimedPart::experts && part != TimedPart::up && part != TimedPart::down && part != TimedPart::shared &&
         part != TimedPart::sum;
}

// `emulated`, `intermediate`: as their options, 0 for none. Throws Errc::invalid_argument for layers that cannot be.
LayerShape layer_shape_of(const ModelShape& model, int ranks, std::uint32_t emulated, std::int64_t intermediate,
                          GemmType type = GemmType::fp8);
// Columns of a shared expert's middle: `asked`, or the model's. Throws Errc::invalid_argument likewise.
std::uint32_t shared_columns_of(const ModelShape& model, std::int64_t asked, GemmType type);
// Throws Errc::invalid_argument if these ranks have no GEMMs, or would take very long.
void check_gemms_for(const Ranks& ranks, const LayerShape& shape, std::int64_t most_tokens);

// Each layer's output as a way must give it: see LayerRank::run_reference().
using LayerOutputs = std::vector<std::vector<std::byte>>;
LayerOutputs reference_outputs(Ranks::Seat& seat, LayerRank& rank, const LayerWay& way);
// Runs every layer in a way, and compares its output. Empty if it is right.
std::string compare_way(Ranks::Seat& seat, LayerRank& rank, const LayerWay& way, const LayerOutputs& expected);
// µs, [rank][sample].
std::vector<std::vector<double>> time_part(Ranks::Seat& seat, LayerRank& rank, TimedPart part, const LayerWay& way,
                                           int samples);

}  // namespace weft::cli
