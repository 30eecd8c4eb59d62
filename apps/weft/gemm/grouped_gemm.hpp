// Grouped GEMMs of one GPU rank's experts for `weft bench moe-layer`: e4m3 with scales per 128 columns and weights per
// 128 × 128, bf16 out. The kernels are CUTLASS's, if the build has found its headers (cmake/cutlass.cmake).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "weft/moe_layer.hpp"

namespace weft::cli {

// The weights of one GEMM of all local experts: [experts, output columns, input columns] e4m3, and f32 of each 128 ×
// 128.
struct ExpertWeights {
  const void* numbers = nullptr;
  const float* scales = nullptr;
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
};

// From so many rows on the larger tile reads weights fewer times. With fewer, the rows of many experts end early in
// their second tile, of which most is then for nothing. Measured on two H200 (docs/notes).
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
  // The input is of RowLayout::expert_masked, cast, with f32 scales by rows. Calls with the same weights and input have
  // the same other tensors. Up GEMMs read the counts of all experts if they begin with expert 0, or if those of the
  // call before were others.
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
