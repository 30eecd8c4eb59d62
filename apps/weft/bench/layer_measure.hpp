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
  up,  // and the activation, undivided
  down,
  sum  // of a token's owner, if a larger parallelism is emulated
};
constexpr std::string_view name(TimedPart part) {
  constexpr std::string_view names[] = {"layer",
                                        "dispatch + combine",
                                        "experts",
                                        "dispatch",
                                        "combine",
                                        "dispatch of the first round",
                                        "combine of the last round",
                                        "up GEMM and activation",
                                        "down GEMM",
                                        "owner's sum"};
  return names[static_cast<int>(part)];
}
constexpr bool sends(TimedPart part) {
  return part != TimedPart::experts && part != TimedPart::up && part != TimedPart::down && part != TimedPart::sum;
}

// `emulated`, `intermediate`: as their options, 0 for none. Throws Errc::invalid_argument for layers that cannot be.
LayerShape layer_shape_of(const ModelShape& model, int ranks, std::uint32_t emulated, std::int64_t intermediate);
// Throws Errc::invalid_argument if these ranks have no GEMMs, or would take very long.
void check_gemms_for(const Ranks& ranks, const LayerShape& shape, std::int64_t most_tokens);

// Each layer's output as one part after the other makes it.
std::vector<std::vector<std::byte>> plain_outputs(Ranks::Seat& seat, LayerRank& rank);
// Runs every layer in a way, and compares its output. Empty if it is right.
std::string compare_way(Ranks::Seat& seat, LayerRank& rank, const LayerWay& way,
                        const std::vector<std::vector<std::byte>>& plain);
// µs, [rank][sample].
std::vector<std::vector<double>> time_part(Ranks::Seat& seat, LayerRank& rank, TimedPart part, const LayerWay& way,
                                           int samples);

}  // namespace weft::cli
