// Grouped GEMMs of one rank's experts for `weft bench moe-layer`, bf16 out. On GPUs the kernels are CUTLASS's, if the
// build has found its headers (cmake/cutlass.cmake).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/moe_layer.hpp"

namespace weft::cli {

// Numbers of rows and weights: e4m3 with scales per 128 columns, of weights per 128 × 128; or bf16 without scales.
enum class GemmType : std::uint8_t { fp8, bf16 };
constexpr std::string_view name(GemmType type) {
  return type == GemmType::fp8 ? "fp8" : "bf16";
}
constexpr std::uint32_t bytes_of(GemmType type) {
  return type == GemmType::fp8 ? 1 : 2;
}
// The cast of rows in front of both GEMMs.
constexpr RowCast cast_of(GemmType type) {
  return type == GemmType::fp8 ? RowCast::fp8 : RowCast::none;
}

// The weights of one GEMM of all local experts: [experts, output columns, input columns] numbers, and their f32 scales
// if they are fp8.
struct ExpertWeights {
  const void* numbers = nullptr;
  const float* scales = nullptr;
  GemmType type() const { return scales != nullptr ? GemmType::fp8 : GemmType::bf16; }
};

// Rows of a tile of outputs. All tiles have 128 columns.
enum class GemmTile : std::uint8_t { automatic, rows_64, rows_128 };
constexpr std::string_view name(GemmTile tile) {
  constexpr std::string_view names[] = {"automatic", "64", "128"};
  return names[static_cast<int>(tile)];
}

struct GroupedGemmArgs {
  int device = 0;
  std::uint32_t experts = 0;  // local
  std::uint32_t hidden = 0, intermediate = 0;
  double rows_per_expert = 0;  // the mean that is expected
  GemmTile tile = GemmTile::automatic;
  GemmType type = GemmType::fp8;
};

// From so many rows on the larger tile reads weights fewer times. With fewer, the rows of many experts end early in
// their second tile, of which most is then for nothing. Measured on two H200 with fp8, not
// with bf16 (docs/notes/0062-tiles-of-a-layers-gemms.md).
constexpr double kRowsForTilesOf128 = 192;
// Neither processors nor rounds change the tile, so every schedule has the same bits.
constexpr GemmTile tile_of(const GroupedGemmArgs& args) {
  if (args.tile != GemmTile::automatic) return args.tile;
  return args.rows_per_expert < kRowsForTilesOf128 ? GemmTile::rows_64 : GemmTile::rows_128;
}

// Calls come from one thread, and their streams order them one behind the other.
class ExpertGemms {
 public:
  virtual ~ExpertGemms() = default;
  // The input is of RowLayout::expert_masked and the weights' type, fp8 with f32 scales by rows. Calls with the same
  // weights and input have the same other tensors. Up GEMMs read the counts of all experts if they begin with expert 0,
  // or if those of the call before were others.
  virtual void enqueue(const ExpertGemm& gemm, const ExpertWeights& weights) = 0;
};

// The value of each e4m3, which has no infinities.
const std::array<float, 256>& e4m3_numbers();

// On CPU ranks, in plain loops.
std::unique_ptr<ExpertGemms> open_plain_gemms();
bool has_cutlass_gemms();
// Null if this build has none.
std::unique_ptr<ExpertGemms> open_cutlass_gemms(const GroupedGemmArgs& args);

}  // namespace weft::cli
