// CUTLASS's grouped GEMM for one tile. Each has a file of its own, so that they are compiled at once.
#pragma once

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <stdexcept>
#include <string>
#include <type_traits>

#include "gemm/cutlass_tile.hpp"

namespace weft::cli::grouped {

inline void check(cutlass::Status status) {
  if (status != cutlass::Status::kSuccess)
    throw std::runtime_error(std::string("CUTLASS: ") + cutlass::cutlassGetStatusString(status));
}

// With few rows of an expert weights bound the time: two groups of warps take turns, each with a tile of its own. With
// many rows multiplications do: two groups share a tile and what it loads.
template <int kRows>
struct Schedules;
template <>
struct Schedules<64> {
  using Scaled = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpongFP8Blockwise;
  using Plain = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong;
};
template <>
struct Schedules<128> {
  using Scaled = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperativeFP8Blockwise;
  using Plain = cutlass::gemm::KernelPtrArrayTmaWarpSpecializedCooperative;
  using Epilogue = cutlass::epilogue::PtrArrayTmaWarpSpecializedCooperative;
};

// Input columns come in the same order for all tiles of a type: 128 bytes at a time.
template <class Number, int kRows>
class TileGemm {
 public:
  static std::size_t workspace_bytes(const Call& call) { return Gemm::get_workspace_size(arguments(call)); }
  static void enqueue(const Call& call, void* workspace, cudaStream_t stream) {
    Gemm gemm;
    const typename Gemm::Arguments of_call = arguments(call);
    check(gemm.initialize(of_call, workspace, stream));
    check(gemm.run(stream));
  }

 private:
  static constexpr bool kScaled = std::is_same_v<Number, cutlass::float_e4m3_t>;
  static constexpr int kAligned = 16 / sizeof(Number);
  using TileShape = cute::Shape<cute::Int<kRows>, cute::_128, cute::Int<128 / sizeof(Number)>>;
  using InputLayout = std::conditional_t<kScaled, cute::tuple<ByRows*, InputScales*>, ByRows*>;
  using WeightLayout = std::conditional_t<kScaled, cute::tuple<ByColumns*, WeightScales*>, ByColumns*>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Made, ByRows*, 8, Made, ByRows*, 8,
      typename Schedules<kRows>::Epilogue, cutlass::epilogue::fusion::LinearCombination<Made, float>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, InputLayout, kAligned, Number, WeightLayout,
      kAligned, float, TileShape, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      std::conditional_t<kScaled, typename Schedules<kRows>::Scaled, typename Schedules<kRows>::Plain>>::CollectiveOp;
  using Gemm =
      cutlass::gemm::device::GemmUniversalAdapter<cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>>;

  static typename Mainloop::Arguments operands(const Tables& t, std::uint32_t e) {
    auto* const input = reinterpret_cast<const Number**>(t.input + e);
    auto* const weights = reinterpret_cast<const Number**>(t.weights + e);
    if constexpr (kScaled)
      return {input,
              t.input_stride + e,
              weights,
              t.weight_stride + e,
              t.input_scales + e,
              t.input_scale_layout + e,
              t.weight_scales + e,
              t.weight_scale_layout + e};
    else
      return {input, t.input_stride + e, weights, t.weight_stride + e};
  }
  static typename Gemm::Arguments arguments(const Call& call) {
    cutlass::KernelHardwareInfo hardware;
    hardware.device_id = call.device;
    hardware.sm_count = call.processors;
    const Tables& t = call.tables;
    const std::uint32_t e = call.first_expert;
    typename Gemm::Arguments all{
        cutlass::gemm::GemmUniversalMode::kGrouped,
        {static_cast<int>(call.experts), t.shapes + e, nullptr},
        operands(t, e),
        {{}, const_cast<const Made**>(t.output + e), t.output_stride + e, t.output + e, t.output_stride + e},
        hardware};
    all.epilogue.thread.alpha = 1;
    all.epilogue.thread.beta = 0;
    all.epilogue.thread.dAlpha = {cute::_0{}, cute::_0{}, 0};
    all.epilogue.thread.dBeta = {cute::_0{}, cute::_0{}, 0};
    return all;
  }
};

template <class Number, int kRows>
constexpr TileKernels kernels_of() {
  return {TileGemm<Number, kRows>::workspace_bytes, TileGemm<Number, kRows>::enqueue};
}

}  // namespace weft::cli::grouped
