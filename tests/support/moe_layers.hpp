// Layers of experts with known weights, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "support/moe_rounds.hpp"
#include "weft/moe_layer.hpp"

namespace weft::test {

inline constexpr std::uint32_t kLayerMiddle = 128;  // columns between the GEMMs

// A schedule with its rounds.
struct LayerOrder {
  LayerSchedule schedule;
  Division division;  // empty: one round
};
std::vector<LayerOrder> every_order(const MoeExchangeArgs& args, std::uint32_t ranks);

// Layers in both layouts, with and without casts on the way to each GEMM, and with a ring.
struct LayerCase {
  MoeCase call;
  RowCast down_cast;
};
std::vector<std::vector<LayerCase>> layers_of_every_kind(std::uint32_t ranks);

// A call of the layer with the tensors of a dispatch and of a combine; the GEMMs and the output are missing. The
// workspace begins at the first aligned byte from `memory` on.
MoeLayerCall layer_call(const DispatchArgs& there, const CombineArgs& back, const LayerOrder& order, std::byte* memory);

// A CPU rank's memory for one call of a layer, with GEMMs in plain loops.
class CpuLayer {
 public:
  CpuLayer(const MoeExchange& exchange, const LayerCase& of, const PreparedMoe& p, std::uint32_t rank);
  // Of replicas, which have weights of their own: `p` was prepared for `numbers`, whose experts are the replicas.
  CpuLayer(const MoeExchange& exchange, const LayerCase& of, const PreparedMoe& p, std::uint32_t rank,
           const MoeExchange& numbers);

  // Another call with as many tokens at most, in the same memory.
  void fill(const PreparedMoe& p);
  MoeLayerCall call(const LayerOrder& order);
  const MoeLayer& layer() const { return layer_; }
  std::span<const std::byte> output() const;
  // Compares the activation's rows with a formula.
  void check_middle() const;
  // The rows that this rank's experts made, by expert and place.
  void give_results(std::vector<std::vector<Bytes>>& all) const;
  // Compares the output with the oracle's combine of all experts' rows.
  void check_output(const std::vector<std::vector<Bytes>>& all) const;

 private:
  void gemm(const ExpertGemm& gemm);
  // By expert and place, as the down GEMM found and made them.
  struct Made {
    Bytes gate_up, middle, result;
  };

  const MoeExchange& exchange_;
  std::vector<std::uint32_t> experts_;  // global numbers of the rank's experts
  MoeLayer layer_;
  MoeLayerArgs args_;
  const PreparedMoe* p_;
  std::uint32_t rank_;
  CpuMoe moe_;  // for its input tensors
  std::vector<std::byte> workspace_;
  Bytes output_;
  std::vector<std::vector<Made>> made_;  // by local expert
};

}  // namespace weft::test
