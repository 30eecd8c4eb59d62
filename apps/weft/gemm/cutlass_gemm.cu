#include <cutlass/util/packed_stride.hpp>

#include <list>
#include <stdexcept>
#include <string>
#include <vector>

#include "gemm/cutlass_tile.hpp"
#include "gemm/grouped_gemm.hpp"

namespace weft::cli::grouped {
namespace {

void check(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

struct Fixed {
  Tables tables;
  ExpertGemm gemm;
  ExpertWeights weights;
  std::uint32_t experts, number_bytes;
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
    to.input[e] = static_cast<const char*>(of.gemm.input) + row * k * of.number_bytes;
    to.weights[e] = static_cast<const char*>(of.weights.numbers) + weight * k * of.number_bytes;
    to.output[e] = static_cast<Made*>(of.gemm.output) + row * n;
    to.input_stride[e] = cutlass::make_cute_packed_stride(InputStride{}, {rows, k, 1});
    to.weight_stride[e] = cutlass::make_cute_packed_stride(WeightStride{}, {n, k, 1});
    to.output_stride[e] = cutlass::make_cute_packed_stride(OutputStride{}, {rows, n, 1});
    if (of.weights.scales == nullptr) continue;
    to.input_scales[e] = static_cast<const float*>(of.gemm.input_scales) + row * (k / 128);
    to.weight_scales[e] = of.weights.scales + weight / 128 * (k / 128);
    to.input_scale_layout[e] = ScaleConfig::tile_atom_to_shape_SFA(cute::make_shape(rows, n, k, 1));
    to.weight_scale_layout[e] = ScaleConfig::tile_atom_to_shape_SFB(cute::make_shape(rows, n, k, 1));
  }
}

// Rows of both GEMMs, from the counts of this dispatch.
__global__ void count(Shape* up, Shape* down, const std::int32_t* counts, std::uint32_t experts, int capacity) {
  for (std::uint32_t e = threadIdx.x; e < experts; e += blockDim.x) {
    const int rows = counts[e] < capacity ? counts[e] : capacity;
    cute::get<0>(up[e]) = rows;
    cute::get<0>(down[e]) = rows;
  }
}

const TileKernels& kernels_for(const GroupedGemmArgs& args) {
  const bool large = tile_of(args) == GemmTile::rows_128;
  if (args.type == GemmType::bf16) return large ? kBf16Tiles128 : kBf16Tiles64;
  return large ? kFp8Tiles128 : kFp8Tiles64;
}

class CutlassGemms final : public ExpertGemms {
 public:
  explicit CutlassGemms(const GroupedGemmArgs& args) : args_(args), kernels_(kernels_for(args)) {
    check(cudaSetDevice(args.device), "cudaSetDevice");
    check(cudaDeviceGetAttribute(&processors_, cudaDevAttrMultiProcessorCount, args.device), "cudaDeviceGetAttribute");
    const Call all{.experts = args.experts, .device = args.device, .processors = processors_};
    check(cudaMalloc(&workspace_, kernels_.workspace_bytes(all)), "cudaMalloc");
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
    kernels_.enqueue({.tables = one.tables,
                      .first_expert = gemm.first_expert,
                      .experts = gemm.experts,
                      .device = args_.device,
                      .processors = gemm.num_sms != 0 ? gemm.num_sms : processors_},
                     workspace_, stream);
  }

 private:
  struct One {
    Tables tables{};
    const void *weights = nullptr, *input = nullptr;
  };
  // Of both GEMMs of a workspace.
  struct Shapes {
    const std::int32_t* counts = nullptr;
    Shape *up = nullptr, *down = nullptr;
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
    allocate(one.tables.input_stride);
    allocate(one.tables.weight_stride);
    allocate(one.tables.output_stride);
    if (args_.type == GemmType::fp8) {
      allocate(one.tables.input_scales);
      allocate(one.tables.weight_scales);
      allocate(one.tables.input_scale_layout);
      allocate(one.tables.weight_scale_layout);
    }
    fix<<<1, 128, 0, stream>>>({one.tables, gemm, weights, args_.experts, bytes_of(args_.type)});
    return one;
  }

  GroupedGemmArgs args_;
  const TileKernels& kernels_;
  std::list<One> of_;
  std::vector<void*> memory_;
  std::list<Shapes> shapes_;
  const std::int32_t* counted_ = nullptr;  // counts of the last up GEMM
  int processors_ = 0;
  void* workspace_ = nullptr;
};

}  // namespace
}  // namespace weft::cli::grouped

namespace weft::cli {

bool has_cutlass_gemms() {
  return true;
}
std::unique_ptr<ExpertGemms> open_cutlass_gemms(const GroupedGemmArgs& args) {
  return std::make_unique<grouped::CutlassGemms>(args);
}

}  // namespace weft::cli
