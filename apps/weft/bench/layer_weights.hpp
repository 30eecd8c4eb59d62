// The weights of a layer's experts, and a check of the GEMMs that multiply by them.
#pragma once

#include <cstdint>
#include <string>

#include "bench/rank_device.hpp"
#include "gemm/grouped_gemm.hpp"

namespace weft::cli {

struct LayerWeights {
  ExpertWeights up, down;
};

struct WeightsShape {
  std::uint32_t hidden = 0, intermediate = 0, experts = 0;
  GemmType type = GemmType::fp8;
};
// In the device's memory; made of `seed`.
LayerWeights make_weights(RankDevice& device, const WeightsShape& shape, std::uint32_t seed);

// Compares a few output columns of the first and the last row of an expert that has rows with sums on the host. Empty
// if they are right. `experts`: of the rank.
std::string check_gemm(RankDevice& device, const ExpertGemm& gemm, const ExpertWeights& weights, std::uint32_t experts);

}  // namespace weft::cli
