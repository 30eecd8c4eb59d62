// A rank's tensors for calls of thousands of tokens. The CPU would take minutes to work out what comes, so results are
// compared on the GPU with those of another way of rows.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpu/support/far_memory.hpp"
#include "gpu/support/gpu_world.hpp"
#include "gpu/support/kernels.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "weft/moe.hpp"

namespace weft::test {

// Tensors that a dispatch with a cast to fp8, and its combine, write.
enum class LargeOutput { rows, scales, ids, weights, sources, counts, offsets, source_tokens, rank_prefix, result };
inline constexpr std::size_t kLargeOutputs = 10;

class LargeMoe {
 public:
  // `rank`: of the group. Its tokens are the `tokens` behind the `first` ones of all that the rank has.
  LargeMoe(GpuRank& gpu, const MoeExchange& exchange, std::uint32_t ranks, std::uint32_t rank, std::uint32_t tokens,
           std::uint32_t first = 0)
      : gpu_(gpu), args_(exchange.args()), rows_(exchange.output_rows()), tokens_(tokens) {
    const std::size_t entries = std::size_t{tokens} * args_.top_k, hidden = args_.hidden;
    const bool joint = detail::has_joint_rows(args_.layout), compact = args_.layout == RowLayout::rank_compact;
    row_bytes_ = {hidden, hidden / kScaleColumns * sizeof(float), joint ? args_.top_k * 4 : 0,
                  joint ? args_.top_k * 4 : 0, args_.layout != RowLayout::rank_major ? 4u : 0u};
    for (std::size_t i = 0; i < row_bytes_.size(); ++i) bytes_[i] = rows_ * row_bytes_[i];
    take(LargeOutput::counts, exchange.local_experts() * 4);
    take(LargeOutput::offsets, args_.layout == RowLayout::expert_contiguous ? (exchange.local_experts() + 1) * 4 : 0);
    take(LargeOutput::source_tokens, ranks * 4);
    take(LargeOutput::rank_prefix, compact ? ranks * ranks * 4 : 0);
    take(LargeOutput::result, tokens * hidden * 2);
    for (std::size_t i = 0; i < kLargeOutputs; ++i) outputs_[i] = far_memory(bytes_[i] + 16);
    made_ = far_memory(rows_ * hidden * 2);
    wrong_ = far_memory(sizeof(unsigned long long));
    // Numbers between 0.5 and 2, of either sign, and experts that are all different. Some entries name none.
    std::uint64_t state = 0x9e3779b97f4a7c15u * (rank + 1);
    const auto next = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u; };
    std::vector<std::uint64_t> rows((first + std::size_t{tokens}) * hidden / 4);
    for (std::uint64_t& four : rows) four = 0x3f003f003f003f00u | ((next() >> 13) & 0x80ff80ff80ff80ffu);
    input_ = upload(rows.data() + first * hidden / 4, tokens * hidden * 2);
    state = rank + 1;  // wherever the rows have ended
    std::vector<float> weights((first + std::size_t{tokens}) * args_.top_k);
    ids_.resize(weights.size());
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::size_t token = i / args_.top_k, k = i % args_.top_k;
      const std::uint64_t random = next() >> 33;
      ids_[i] = random % 9 == 0 ? -1 : static_cast<std::int32_t>((token * 37 + token / 5 + k) % args_.experts);
      weights[i] = static_cast<float>(random % 1000 + 1) * 0.001f;
    }
    ids_.erase(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(first * args_.top_k));
    given_ids_ = upload(ids_.data(), entries * 4);
    given_weights_ = upload(weights.data() + first * args_.top_k, entries * 4);
    gpu.synchronize();
  }

  // The launch of the calls that follow.
  void set_launch(const Launch& launch) { launch_ = launch; }
  // Canaries in all outputs.
  void clear() {
    for (std::size_t i = 0; i < kLargeOutputs; ++i) put_canaries(i);
  }
  // In those that a dispatch made again writes.
  void forget() {
    for (const LargeOutput one : {LargeOutput::rows, LargeOutput::scales, LargeOutput::result}) {
      put_canaries(static_cast<std::size_t>(one));
    }
  }

  DispatchArgs dispatch() const {
    DispatchArgs to{.input = input_.get(), .topk_ids = given_ids_.get()};
    if (!args_.weights_at_combine) to.topk_weights = reinterpret_cast<const float*>(given_weights_.get());
    to.tokens = tokens_;
    to.most_tokens = args_.slot_tokens;
    to.output = at(LargeOutput::rows);
    to.output_scales = at(LargeOutput::scales);
    to.counts = words(LargeOutput::counts);
    to.offsets = words(LargeOutput::offsets);
    to.output_sources = words(LargeOutput::sources);
    to.rank_prefix = words(LargeOutput::rank_prefix);
    to.source_tokens = words(LargeOutput::source_tokens);
    to.output_ids = words(LargeOutput::ids);
    to.output_weights = reinterpret_cast<float*>(words(LargeOutput::weights));
    to.stream = gpu_.stream();
    to.launch = launch_;
    return to;
  }
  // An expert's result has the bytes of its row twice: so its bits follow from the row's.
  CombineArgs combine(DispatchHandle handle) const {
    for (const std::size_t half : {0, 1}) {
      detail::check_cuda(
          cudaMemcpy2DAsync(made_.get() + half * args_.hidden, std::size_t{2} * args_.hidden, at(LargeOutput::rows),
                            args_.hidden, args_.hidden, rows_, cudaMemcpyDeviceToDevice, gpu_.stream()),
          "copy of rows");
    }
    CombineArgs back{.handle = handle, .input = made_.get(), .output = at(LargeOutput::result)};
    if (args_.weights_at_combine) back.topk_weights = reinterpret_cast<const float*>(given_weights_.get());
    back.stream = gpu_.stream();
    back.launch = launch_;
    return back;
  }
  // Makes the exchange's arguments those of later calls: ways differ in them, and tensors do not.
  void use(const MoeExchange& exchange) { args_ = exchange.args(); }

  // The outputs whose bytes are not those of `other`, which stay. These do not.
  std::string differences(const LargeMoe& other) {
    constexpr const char* kNames[] = {"rows",   "scales",  "ids",           "weights",     "sources",
                                      "counts", "offsets", "source_tokens", "rank_prefix", "result"};
    std::string all;
    for (std::size_t i = 0; i < kLargeOutputs; ++i) {
      const unsigned long long wrong = count(outputs_[i].get(), other.outputs_[i].get(), bytes_[i]);
      if (wrong != 0) all += std::string(" ") + kNames[i] + ": " + std::to_string(wrong) + " bytes";
    }
    return all;
  }
  // Bytes of results, and of rank-major rows, that differ from those of the same tokens in `whole`. There they are
  // behind `first` others. `sources`: the tokens of each rank in this call.
  unsigned long long differences_in(const LargeMoe& whole, std::uint32_t first,
                                    const std::vector<std::uint32_t>& sources) {
    const std::size_t width = std::size_t{args_.hidden} * 2;
    unsigned long long wrong =
        count(at(LargeOutput::result), whole.at(LargeOutput::result) + first * width, tokens_ * width);
    const bool rows = args_.layout == RowLayout::rank_major && whole.args_.layout == RowLayout::rank_major;
    for (std::size_t source = 0; rows && source < sources.size(); ++source) {
      for (std::size_t i = 0; i < row_bytes_.size(); ++i) {
        wrong += count(outputs_[i].get() + source * args_.tokens * row_bytes_[i],
                       whole.outputs_[i].get() + (source * whole.args_.tokens + first) * row_bytes_[i],
                       sources[source] * row_bytes_[i]);
      }
    }
    return wrong;
  }
  // Whether the rows of each expert come in (source rank, token) order.
  bool in_order() {
    std::vector<std::int32_t> counts(bytes_[static_cast<std::size_t>(LargeOutput::counts)] / 4), sources(rows_);
    download(LargeOutput::counts, counts.data());
    download(LargeOutput::sources, sources.data());
    std::size_t begin = 0;
    for (const std::int32_t rows : counts) {
      const auto first = sources.begin() + static_cast<std::ptrdiff_t>(begin);
      if (std::adjacent_find(first, first + rows, std::greater_equal()) != first + rows) return false;
      const std::size_t step = std::size_t{args_.alignment};
      begin += args_.layout == RowLayout::expert_masked ? args_.capacity
                                                        : (static_cast<std::size_t>(rows) + step - 1) / step * step;
    }
    return true;
  }

 private:
  void take(LargeOutput output, std::size_t bytes) { bytes_[static_cast<std::size_t>(output)] = bytes; }
  std::byte* at(LargeOutput output) const { return outputs_[static_cast<std::size_t>(output)].get(); }
  std::int32_t* words(LargeOutput output) const {
    return bytes_[static_cast<std::size_t>(output)] == 0 ? nullptr : reinterpret_cast<std::int32_t*>(at(output));
  }
  void put_canaries(std::size_t output) {
    detail::check_cuda(cudaMemsetAsync(outputs_[output].get(), 0x11, bytes_[output], gpu_.stream()), "cudaMemset");
  }
  FarMemory upload(const void* from, std::size_t bytes) const {
    FarMemory to = far_memory(bytes + 16);
    detail::check_cuda(cudaMemcpyAsync(to.get(), from, bytes, cudaMemcpyHostToDevice, gpu_.stream()), "upload");
    gpu_.synchronize();
    return to;
  }
  void download(LargeOutput output, void* to) const {
    detail::check_cuda(cudaMemcpyAsync(to, at(output), bytes_[static_cast<std::size_t>(output)], cudaMemcpyDeviceToHost,
                                       gpu_.stream()),
                       "download");
    gpu_.synchronize();
  }
  unsigned long long count(std::byte* got, const std::byte* wanted, std::size_t bytes) {
    if (bytes == 0) return 0;
    auto* const on_gpu = reinterpret_cast<unsigned long long*>(wrong_.get());
    detail::check_cuda(cudaMemsetAsync(on_gpu, 0, sizeof(*on_gpu), gpu_.stream()), "cudaMemset");
    count_differences(got, wanted, bytes, on_gpu, gpu_.stream());
    unsigned long long wrong = 0;
    detail::check_cuda(cudaMemcpyAsync(&wrong, on_gpu, sizeof(wrong), cudaMemcpyDeviceToHost, gpu_.stream()),
                       "download");
    gpu_.synchronize();
    return wrong;
  }

  GpuRank& gpu_;
  MoeExchangeArgs args_;
  std::size_t rows_;
  std::uint32_t tokens_;
  Launch launch_{};
  std::array<std::size_t, 5> row_bytes_{};  // of the outputs that have rows, which are the first
  std::array<std::size_t, kLargeOutputs> bytes_{};
  std::array<FarMemory, kLargeOutputs> outputs_;
  FarMemory input_, given_ids_, given_weights_, made_, wrong_;
  std::vector<std::int32_t> ids_;
};

}  // namespace weft::test
