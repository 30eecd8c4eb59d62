#include <cuda_runtime.h>

#include <cutlass/cutlass.h>
#include <cutlass/gemm/device/gemm_universal_adapter.h>
#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/group_array_problem_shape.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>
#include <cutlass/util/packed_stride.hpp>

#include <list>
#include <stdexcept>
#include <string>
#include <vector>

#include "gemm/grouped_gemm.hpp"

namespace weft::cli {
namespace {

using cute::_1;
using cute::_128;
using cute::_64;
using cute::Shape;

using Number = cutlass::float_e4m3_t;
using Made = cutlass::bfloat16_t;
using ByRows = cutlass::layout::RowMajor;
using ByColumns = cutlass::layout::ColumnMajor;
using Problem = cutlass::gemm::GroupProblemShape<Shape<int, int, int>>;  // rows, output columns, input columns
// CUTLASS computes the places of scales from a group's number of rows. By rows they do not depend on it.
using ScaleConfig = cutlass::detail::Sm90BlockwiseScaleConfig<1, 128, 128, cute::GMMA::Major::K, cute::GMMA::Major::MN>;
using InputScales = decltype(ScaleConfig::deduce_layoutSFA());
using WeightScales = decltype(ScaleConfig::deduce_layoutSFB());

// A tile of 64 rows: experts have few rows in decoding, and weights bound the time. No tile depends on the number of
// processors, so the bits do not either.
using Tile = Shape<_64, _128, _128>;
using Cluster = Shape<_1, _1, _1>;
using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Tile, Cluster, cutlass::epilogue::collective::EpilogueTileAuto,
    float, float, Made, ByRows*, 8, Made, ByRows*, 8, cutlass::epilogue::PtrArrayTmaWarpSpecializedPingpong,
    cutlass::epilogue::fusion::LinearCombination<Made, float>>::CollectiveOp;
using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
    cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Number, cute::tuple<ByRows*, InputScales*>, 16, Number,
    cute::tuple<ByColumns*, WeightScales*>, 16, float, Tile, Cluster,
    cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(sizeof(typename Epilogue::SharedStorage))>,
    cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpongFP8Blockwise>::CollectiveOp;
using Kernel = cutlass::gemm::kernel::GemmUniversal<Problem, Mainloop, Epilogue>;
using Gemm = cutlass::gemm::device::GemmUniversalAdapter<Kernel>;

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}
void check(cutlass::Status status, const char* what) {
  if (status != cutlass::Status::kSuccess)
    throw std::runtime_error(std::string(what) + ": " + cutlass::cutlassGetStatusString(status));
}

// One GEMM's arrays by local expert, on the device.
struct Tables {
  typename Problem::UnderlyingProblemShape* shapes;
  const Number **input, **weights;
  Made** output;
  const float **input_scales, **weight_scales;
  typename Kernel::InternalStrideA* input_stride;
  typename Kernel::InternalStrideB* weight_stride;
  typename Kernel::InternalStrideD* output_stride;
  InputScales* input_scale_layout;
  WeightScales* weight_scale_layout;
};

struct Fixed {
  Tables tables;
  ExpertGemm gemm;
  ExpertWeights weights;
  std::uint32_t experts;
};

// Everything but the numbers of rows, once.
__global__ void fix(Fixed of) {
  for (std::uint32_t e = threadIdx.x; e < of.experts; e += blockDim.x) {
    const Tables& to = of.tables;
    const int rows = static_cast<int>(of.gemm.capacity), n = static_cast<int>(of.gemm.output_columns),
              k = static_cast<int>(of.gemm.input_columns);
    const std::uint64_t row = std::uint64_t{e} * of.gemm.capacity, weight = std::uint64_t{e} * of.gemm.output_columns;
    cute::get<1>(to.shapes[e]) = n;
    cute::get<2>(to.shapes[e]) = k;
    to.input[e] = static_cast<const Number*>(of.gemm.input) + row * k;
    to.weights[e] = static_cast<const Number*>(of.weights.numbers) + weight * k;
    to.output[e] = static_cast<Made*>(of.gemm.output) + row * n;
    to.input_scales[e] = static_cast<const float*>(of.gemm.input_scales) + row * (k / 128);
    to.weight_scales[e] = of.weights.scales + weight / 128 * (k / 128);
    to.input_stride[e] = cutlass::make_cute_packed_stride(typename Kernel::InternalStrideA{}, {rows, k, 1});
    to.weight_stride[e] = cutlass::make_cute_packed_stride(typename Kernel::InternalStrideB{}, {n, k, 1});
    to.output_stride[e] = cutlass::make_cute_packed_stride(typename Kernel::InternalStrideD{}, {rows, n, 1});
    to.input_scale_layout[e] = ScaleConfig::tile_atom_to_shape_SFA(cute::make_shape(rows, n, k, 1));
    to.weight_scale_layout[e] = ScaleConfig::tile_atom_to_shape_SFB(cute::make_shape(rows, n, k, 1));
  }
}

// Rows of both GEMMs, from the counts of this dispatch.
__global__ void count(typename Problem::UnderlyingProblemShape* up, typename Problem::UnderlyingProblemShape* down,
                      const std::int32_t* counts, std::uint32_t experts, int capacity) {
  for (std::uint32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    const int rows = counts[e] < capacity ? counts[e] : capacity;
    cute::get<0>(up[e]) = rows;
    cute::get<0>(down[e]) = rows;
  }
}

class CutlassGemms final : public ExpertGemms {
 public:
  explicit CutlassGemms(const GroupedGemmArgs& args) : args_(args) {
    check(cudaSetDevice(args.device), "cudaSetDevice");
    check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, args.device), "cudaDeviceGetAttribute");
    ExpertGemm all;
    all.num_sms = processors_;
    all.experts = args.experts;
    check(cudaMalloc(&workspace_, Gemm::get_workspace_size(arguments({}, all))), "cudaMalloc");
  }
  ~CutlassGemms() override {
    static_cast<void>(cudaSetDevice(args_.device));
    for (void* memory : memory_) static_cast<void>(cudaFree(memory));
    static_cast<void>(cudaFree(workspace_));
  }
  CutlassGemms(const CutlassGemms&) = delete;
  CutlassGemms& operator=(const CutlassGemms&) = delete;

  void enqueue(const ExpertGemm& gemm, const ExpertWeights& weights) override {
    check(cudaSetDevice(args_.device), "cudaSetDevice");
    const auto stream = static_cast<cudaStream_t>(gemm.stream);
    const One& one = tables_of(gemm, weights, stream);
    if (gemm.which == ExpertGemm::Which::up && (gemm.first_expert == 0 || gemm.counts != counted_)) {
      const Shapes& shapes = shapes_of(gemm.counts);
      count<<<1, 128, 0, stream>>>(shapes.up, shapes.down, gemm.counts, args_.experts, static_cast<int>(gemm.capacity));
      counted_ = gemm.counts;
    }
    Gemm kernel;
    const typename Gemm::Arguments of_call = arguments(one, gemm);
    check(kernel.initialize(of_call, workspace_, stream), "CUTLASS");
    check(kernel.run(stream), "CUTLASS");
  }

 private:
  struct One {
    Tables tables{};
    const void *weights = nullptr, *input = nullptr;
  };
  // Of both GEMMs of a workspace.
  struct Shapes {
    const std::int32_t* counts = nullptr;
    typename Problem::UnderlyingProblemShape *up = nullptr, *down = nullptr;
  };

  template <class T>
  void allocate(T*& to) {
    check(cudaMalloc(&to, args_.experts * sizeof(T)), "cudaMalloc");
    memory_.push_back(to);
  }
  const Shapes& shapes_of(const std::int32_t* counts) {
    for (const Shapes& one : shapes_)
      if (one.counts == counts) return one;
    Shapes& one = shapes_.emplace_back();
    one.counts = counts;
    allocate(one.up);
    allocate(one.down);
    return one;
  }
  // Layers take turns, so that their weights are not found in the cache. Each has tables that its first call fills.
  const One& tables_of(const ExpertGemm& gemm, const ExpertWeights& weights, cudaStream_t stream) {
    for (const One& one : of_)
      if (one.weights == weights.numbers && one.input == gemm.input) return one;
    One& one = of_.emplace_back();
    one.weights = weights.numbers;
    one.input = gemm.input;
    const Shapes& shapes = shapes_of(gemm.counts);
    one.tables.shapes = gemm.which == ExpertGemm::Which::up ? shapes.up : shapes.down;
    allocate(one.tables.input);
    allocate(one.tables.weights);
    allocate(one.tables.output);
    allocate(one.tables.input_scales);
    allocate(one.tables.weight_scales);
    allocate(one.tables.input_stride);
    allocate(one.tables.weight_stride);
    allocate(one.tables.output_stride);
    allocate(one.tables.input_scale_layout);
    allocate(one.tables.weight_scale_layout);
    fix<<<1, 128, 0, stream>>>({one.tables, gemm, weights, args_.experts});
    return one;
  }
  typename Gemm::Arguments arguments(const One& one, const ExpertGemm& gemm) const {
    cutlass::KernelHardwareInfo hardware;
    hardware.device_id = args_.device;
    hardware.sm_count = gemm.num_sms != 0 ? gemm.num_sms : processors_;
    const Tables& t = one.tables;
    const std::uint32_t e = gemm.first_expert;
    typename Gemm::Arguments all{
        cutlass::gemm::GemmUniversalMode::kGrouped,
        {static_cast<int>(gemm.experts), t.shapes + e, nullptr},
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

  GroupedGemmArgs args_;
  std::list<One> of_;
  std::vector<void*> memory_;
  std::list<Shapes> shapes_;
  const std::int32_t* counted_ = nullptr;  // counts of the last up GEMM
  int processors_ = 0;
  void* workspace_ = nullptr;
};

}  // namespace

bool has_cutlass_gemms() {
  return true;
}
std::unique_ptr<ExpertGemms> open_cutlass_gemms(const GroupedGemmArgs& args) {
  return std::make_unique<CutlassGemms>(args);
}

}  // namespace weft::cli
