// A rank's memory for calls of a layer on the GPU, with GEMMs in plain loops. Made once for a layer; filled and used
// any number of times, also by a captured graph.
#pragma once

#include <chrono>

#include "gpu/support/gpu_moe.hpp"
#include "gpu/support/kernels.hpp"
#include "gpu/support/plain_gemm.hpp"
#include "support/moe_layers.hpp"

namespace weft::test {

class GpuLayer {
 public:
  GpuLayer(GpuRank& gpu, const Group& group, const MoeExchange& exchange, const LayerCase& of, int blocks)
      : GpuLayer(gpu, group, exchange, of, blocks, exchange) {}
  // Of replicas, which have weights of their own: calls are prepared for `numbers`, whose experts are the replicas.
  GpuLayer(GpuRank& gpu, const Group& group, const MoeExchange& exchange, const LayerCase& of, int blocks,
           const MoeExchange& numbers)
      : gpu_(gpu),
        group_(group),
        exchange_(exchange),
        layer_(MoeLayer::create(exchange, {.intermediate = kLayerMiddle, .down_cast = of.down_cast})),
        down_cast_(of.down_cast),
        blocks_(blocks),
        first_expert_(numbers.experts().empty() ? 0 : numbers.experts()[0]),
        moe_(gpu, group, numbers),
        workspace_(gpu.device_memory(layer_.workspace_bytes() + 256)),
        output_bytes_(std::size_t{exchange.args().tokens} * exchange.args().hidden * 2),
        output_(gpu.device_memory(output_bytes_)),
        host_(gpu.host_memory(output_bytes_)) {
    if (&numbers == &exchange) return;
    const std::size_t bytes = std::size_t{exchange.args().tokens} * exchange.args().top_k * sizeof(std::int32_t);
    given_ = gpu.device_memory(bytes);
  }

  void fill(const PreparedMoe& p) {
    moe_.fill(p);
    detail::check_cuda(cudaMemsetAsync(output_, 0x5a, output_bytes_, gpu_.stream()), "cudaMemset");
    detail::check_cuda(cudaMemsetAsync(workspace_, 0x5a, layer_.workspace_bytes(), gpu_.stream()), "cudaMemset");
    const std::vector<std::int32_t>& given = p.tokens[static_cast<std::size_t>(group_.rank())].given;
    if (given_ != nullptr) {
      detail::check_cuda(cudaMemcpyAsync(given_, given.data(), given.size() * sizeof(std::int32_t),
                                         cudaMemcpyHostToDevice, gpu_.stream()),
                         "upload");
    }
    gpu_.synchronize();
  }
  MoeLayerCall call(const PreparedMoe& p, const LayerOrder& order) const {
    MoeLayerCall call =
        layer_call(moe_.dispatch_args(p, gpu_.stream()), moe_.combine_args(p, {}, gpu_.stream()), order, workspace_);
    if (given_ != nullptr) call.topk_ids = given_;
    call.output = output_;
    call.up = [this](const ExpertGemm& of) { gemm(of, exchange_.args().cast); };
    call.down = [this](const ExpertGemm& of) { gemm(of, down_cast_); };
    call.stream = gpu_.stream();
    call.send_num_sms = call.recv_num_sms = call.combine_send_num_sms = call.combine_recv_num_sms = blocks_;
    return call;
  }
  // Only enqueues.
  void run(const MoeLayerCall& call) const { layer_.run(call); }
  Bytes output(const PreparedMoe& p) const {
    gpu_.synchronize();
    group_.check();
    const std::size_t bytes =
        std::size_t{p.tokens[static_cast<std::size_t>(group_.rank())].count} * exchange_.args().hidden * 2;
    detail::check_cuda(cudaMemcpyAsync(host_, output_, bytes, cudaMemcpyDeviceToHost, gpu_.stream()), "download");
    gpu_.synchronize();
    return {host_, host_ + bytes};
  }
  // A call by itself.
  Bytes made(const PreparedMoe& p, const LayerOrder& order) {
    fill(p);
    run(call(p, order));
    return output(p);
  }

 private:
  void gemm(const ExpertGemm& of, RowCast cast) const {
    enqueue({.gemm = of,
             .first_global = first_expert_,
             .cast = cast,
             .order = exchange_.args().scale_order,
             .rows = static_cast<std::uint32_t>(exchange_.output_rows())});
  }

  GpuRank& gpu_;
  const Group& group_;
  const MoeExchange& exchange_;
  MoeLayer layer_;
  RowCast down_cast_;
  int blocks_;
  std::uint32_t first_expert_;
  GpuMoe moe_;
  std::byte* workspace_;
  std::size_t output_bytes_;
  std::byte *output_, *host_;
  std::byte* given_ = nullptr;  // ids before replicas are chosen
};

// Streams of ranks that share a GPU may share a hardware queue. There a rank's wait may stand before the send that it
// waits for. So such ranks have one stream each.
inline bool may_fork(const GpuWorld& world) {
  return !world.shared();
}
inline int blocks_of_part(const GpuWorld& world) {
  return world.shared() ? 2 : 4;
}
// The orders that ranks of this world may take; the first one is plain.
inline std::vector<LayerOrder> every_order(const GpuWorld& world, const MoeExchangeArgs& args) {
  std::vector<LayerOrder> orders = every_order(args, static_cast<std::uint32_t>(world.size()));
  if (!may_fork(world)) std::erase_if(orders, [](const LayerOrder& order) { return !order.division.empty(); });
  return orders;
}

}  // namespace weft::test
