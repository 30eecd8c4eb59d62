// CUTLASS's grouped GEMM for one tile. A tile tells its shape and its schedules; each has a file of its own, so that
// they are compiled at once.
#pragma once

#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include <stdexcept>
#include <string>

#include "gemm/cutlass_tile.hpp"

namespace weft::cli::grouped {

inline void check(cutlass::Status status) {
  if (status != cutlass::Status::kSuccess)
    throw std::runtime_error(std::string("CUTLASS: ") + cutlass::cutlassGetStatusString(status));
}

// Input columns come in the same order for all tiles: 128 at a time.
template <class Tile>
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
  using TileShape = cute::Shape<cute::Int<Tile::rows>, cute::_128, cute::_128>;
  using Cluster = cute::Shape<cute::_1, cute::_1, cute::_1>;
  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Made, ByRows*, 8, Made, ByRows*, 8,
      typename Tile::EpilogueSchedule, cutlass::epilogue::fusion::LinearCombination<Made, float>>::CollectiveOp;
  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, cute::tuple<ByRows*, InputScales*>, 16, Number,
      cute::tuple<ByColumns*, WeightScales*>, 16, float, TileShape, Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
      typename Tile::Schedule>::CollectiveOp;
  using Gemm =
      cutlass::gemm::device::GemmUniversalAdapter<cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>>;

  static typename Gemm::Arguments arguments(const Call& call) {
    cutlass::KernelHardwareInfo hardware;
    hardware.device_id = call.device;
    hardware.sm_count = call.processors;
    const Tables& t = call.tables;
    const std::uint32_t e = call.first_expert;
    typename Gemm::Arguments all{
        cutlass::gemm::GemmUniversalMode::kGrouped,
        {static_cast<int>(call.experts), t.shapes + e, nullptr},
        {t.input + e, t.input_stride + e, t.weights + e, t.weight_stride + e, t.input_scales + e,
         t.input_scale_layout + e, t.weight_scales + e, t.weight_scale_layout + e},
        {{}, const_cast<const Made**>(t.output + e), t.output_stride + e, t.output + e, t.output_stride + e},
        hardware};
    all.epilogue.thread.alpha = 1;
    all.epilogue.thread.beta = 0;
    all.epilogue.thread.dAlpha = {cute::_0{}, cute::_0{}, 0};
    all.epilogue.thread.dBeta = {cute::_0{}, cute::_0{}, 0};
    return all;
  }
};

template <class Tile>
constexpr TileKernels kernels_of() {
  return {TileGemm<Tile>::workspace_bytes, TileGemm<Tile>::enqueue};
}

}  // namespace weft::cli::grouped
