// A rank's memory for dispatch and combine on the GPU. Made once for an exchange; filled, used and checked any number
// of times, also by a captured graph.
#pragma once

#include <array>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "gpu/support/gpu_world.hpp"
#include "kernel/cuda_error.hpp"
#include "ops/moe/exchange.hpp"
#include "support/moe_rounds.hpp"

namespace weft::test {

class GpuMoe {
 public:
  GpuMoe(GpuRank& gpu, const Group& group, const MoeExchange& exchange, Launch launch = {})
      : gpu_(gpu), group_(group), exchange_(exchange), rank_(static_cast<std::uint32_t>(group.rank())) {
    launch_ = launch;
    const MoeExchangeArgs& args = exchange.args();
    const std::size_t rows = exchange.output_rows();
    const bool by_rank = args.layout == RowLayout::rank_major, contiguous = args.layout == RowLayout::expert_contiguous;
    const bool joint = detail::has_joint_rows(args.layout);
    const auto ranks = static_cast<std::size_t>(group.size());
    const std::size_t entries = std::size_t{args.tokens} * args.top_k;
    const std::size_t combined = std::size_t{args.hidden} * 2;
    input_ = take(args.tokens * oracle::MoeRules(args).row_bytes);
    scales_ = take(std::size_t{args.tokens} * args.scale_bytes);
    ids_ = take(entries * sizeof(std::int64_t));
    weights_ = take(entries * sizeof(float));
    output_ = take(rows * oracle::MoeRules(args).arriving_bytes());
    output_scales_ = take(rows * oracle::MoeRules(args).output_scale_bytes());
    counts_ = take(exchange.local_experts() * sizeof(std::int32_t));
    offsets_ = take(contiguous ? (exchange.local_experts() + 1) * sizeof(std::int32_t) : 0);
    sources_ = take(by_rank ? 0 : rows * sizeof(std::int32_t));
    source_tokens_ = take(ranks * sizeof(std::int32_t));
    rank_prefix_ = take(joint && !by_rank ? ranks * ranks * sizeof(std::int32_t) : 0);
    local_ids_ = take(joint ? rows * args.top_k * sizeof(std::int32_t) : 0);
    local_weights_ = take(joint && args.weighted ? rows * args.top_k * sizeof(float) : 0);
    expert_rows_ = take(rows * combined);
    residual_ = take(args.tokens * combined);
    result_ = take(args.tokens * combined);
    for (const std::uint32_t bytes : args.payload_bytes) {
      payloads_.push_back(take(std::size_t{args.tokens} * bytes));
      output_payloads_.push_back(take(rows * bytes));
    }
  }

  // Writes everything that a call of `p` reads, and canaries in its outputs. Waits.
  void fill(const PreparedMoe& p) {
    const Tokens& mine = p.tokens[rank_];
    const std::vector<std::int32_t> narrow(mine.ids.begin(), mine.ids.end());
    upload(input_, std::span(mine.rows));
    upload(scales_, std::span(mine.scales));
    fill_payloads(mine);
    upload(ids_, p.call.wide_ids ? std::as_bytes(std::span(mine.ids)) : std::as_bytes(std::span(narrow)));
    upload(weights_, std::as_bytes(std::span(mine.weights)));
    upload(expert_rows_, std::span<const std::byte>(expert_rows(exchange_, p)));
    upload(residual_, std::span(p.residuals[rank_]));
    for (const Buffer* written : {&output_, &output_scales_, &counts_, &offsets_, &sources_, &source_tokens_,
                                  &rank_prefix_, &local_ids_, &local_weights_, &result_}) {
      upload(*written, {});
    }
    gpu_.synchronize();
  }

  // As CpuMoe::fill_again. Waits.
  void fill_again(const PreparedMoe& p) {
    const Tokens& mine = p.tokens[rank_];
    upload(input_, std::span(mine.rows));
    upload(scales_, std::span(mine.scales));
    fill_payloads(mine);
    upload(ids_, {});
    if (!late()) upload(weights_, {});
    for (const Buffer* written : {&output_, &output_scales_, &result_}) upload(*written, {});
    gpu_.synchronize();
  }

  // The arguments of a call of `p`. `blocks`: of the launch.
  DispatchArgs dispatch_args(const PreparedMoe& p, cudaStream_t stream, bool discard = false, int blocks = 0) const {
    std::array<const void*, kMostPayloads> payloads{};
    std::array<void*, kMostPayloads> output_payloads{};
    for (std::size_t i = 0; i < payloads_.size(); ++i) {
      payloads[i] = device(payloads_[i]);
      output_payloads[i] = device(output_payloads_[i]);
    }
    return {.input = device(input_),
            .scales = device(scales_),
            .payloads = payloads,
            .topk_ids = device(ids_),
            .topk_ids_are_i64 = p.call.wide_ids,
            .topk_weights = late() ? nullptr : reinterpret_cast<const float*>(device(weights_)),
            .tokens = p.tokens[rank_].count,
            .most_tokens = p.call.most_tokens,
            .output = device(output_),
            .output_scales = device(output_scales_),
            .output_payloads = output_payloads,
            .counts = words(counts_),
            .offsets = words(offsets_),
            .output_sources = words(sources_),
            .rank_prefix = words(rank_prefix_),
            .source_tokens = words(source_tokens_),
            .output_ids = words(local_ids_),
            .output_weights = reinterpret_cast<float*>(words(local_weights_)),
            .stream = stream,
            .discard = discard,
            .launch = with(blocks)};
  }
  CombineArgs combine_args(const PreparedMoe& p, DispatchHandle handle, cudaStream_t stream, int blocks = 0) const {
    return {.handle = handle,
            .input = device(expert_rows_),
            .topk_weights = late() ? reinterpret_cast<const float*>(device(weights_)) : nullptr,
            .residual = p.call.residual ? device(residual_) : nullptr,
            .output = device(result_),
            .stream = stream,
            .launch = with(blocks)};
  }
  // All four only enqueue.
  DispatchHandle dispatch(const PreparedMoe& p, cudaStream_t stream, bool discard = false) const {
    return exchange_.dispatch(dispatch_args(p, stream, discard));
  }
  void combine(const PreparedMoe& p, DispatchHandle handle, cudaStream_t stream) const {
    exchange_.combine(combine_args(p, handle, stream));
  }
  void combine_send(const PreparedMoe& p, DispatchHandle handle, cudaStream_t stream) const {
    exchange_.combine_send(combine_args(p, handle, stream));
  }
  void combine_wait(const PreparedMoe& p, DispatchHandle handle, cudaStream_t stream) const {
    exchange_.combine_wait(combine_args(p, handle, stream));
  }

  // Both wait. They throw the fault of a call, or if anything is wrong in its outputs or elsewhere.
  void check_dispatch(const PreparedMoe& p) const {
    const Dispatched wanted = dispatched(exchange_, p);
    wait();
    expect(counts_, std::as_bytes(std::span(wanted.counts)), "counts");
    expect(offsets_, std::as_bytes(std::span(wanted.offsets)), "offsets");
    expect(source_tokens_, std::as_bytes(std::span(wanted.source_tokens)), "tokens of sources");
    expect(rank_prefix_, std::as_bytes(std::span(wanted.rank_prefix)), "rows of sources for ranks");
    expect(sources_, std::span(wanted.sources), "sources");
    expect(local_ids_, std::span(wanted.ids), "ids");
    expect(local_weights_, std::span(wanted.weights), "weights");
    expect(output_, std::span(wanted.rows), "rows");
    expect(output_scales_, std::span(wanted.scales), "scales");
    for (std::size_t i = 0; i < output_payloads_.size(); ++i)
      expect(output_payloads_[i], std::span(wanted.payloads[i]), "payload " + std::to_string(i));
  }
  // After a failed dispatch: nothing is written outside the outputs.
  void check_neighbours(const PreparedMoe& p) const {
    const Dispatched wanted = dispatched(exchange_, p);
    gpu_.synchronize();
    expect(sources_, std::span(wanted.sources), "sources", expect_bytes_or_canaries);
    expect(output_, std::span(wanted.rows), "rows", expect_bytes_or_canaries);
    expect(output_scales_, std::span(wanted.scales), "scales", expect_bytes_or_canaries);
    for (std::size_t i = 0; i < output_payloads_.size(); ++i)
      expect(output_payloads_[i], std::span(wanted.payloads[i]), "payload " + std::to_string(i),
             expect_bytes_or_canaries);
  }
  void check_combine(const PreparedMoe& p) const {
    wait();
    expect(result_, std::span(p.results[rank_]), "combined rows");
  }
  // As in CpuMoe. Both wait.
  void make_results(const PreparedMoe& p, std::uint32_t end) const {
    wait();
    upload(expert_rows_, std::span<const std::byte>(expert_rows_below(exchange_, p, end)));
    gpu_.synchronize();
  }
  void check_rows(const PreparedMoe& p, std::uint32_t end) const {
    wait();
    const Dispatched wanted = dispatched(exchange_, p);
    const auto expect_rows = [&](std::span<const std::byte> got, std::span<const std::byte> all, const std::string&) {
      expect_rows_below(exchange_, p, end, got, all);
    };
    expect(output_, std::span(wanted.rows), "rows", expect_rows);
    for (std::size_t i = 0; i < output_payloads_.size(); ++i)
      expect(output_payloads_[i], std::span(wanted.payloads[i]), "payload " + std::to_string(i), expect_rows);
  }

 private:
  struct Buffer {
    std::byte* host;
    std::byte* device;
    std::size_t bytes;  // with canaries in front and behind
  };

  void fill_payloads(const Tokens& mine) const {
    for (std::size_t i = 0; i < payloads_.size(); ++i) {
      upload(payloads_[i], std::span(mine.payloads[i]));
      upload(output_payloads_[i], {});
    }
  }
  bool late() const { return exchange_.args().weights_at_combine; }
  Launch with(int blocks) const {
    Launch launch = launch_;
    if (blocks != 0) launch.blocks = blocks;
    return launch;
  }
  Buffer take(std::size_t content) const {
    const std::size_t bytes = content + 2 * kGuard;
    return {gpu_.host_memory(bytes), gpu_.device_memory(bytes), bytes};
  }
  static std::byte* device(const Buffer& buffer) { return buffer.device + kGuard; }
  // Null if the layout has none.
  static std::int32_t* words(const Buffer& buffer) {
    return buffer.bytes == 2 * kGuard ? nullptr : reinterpret_cast<std::int32_t*>(device(buffer));
  }

  void upload(const Buffer& to, std::span<const std::byte> content) const {
    std::memset(to.host, static_cast<int>(Guarded::kCanary), to.bytes);
    if (!content.empty()) std::memcpy(to.host + kGuard, content.data(), content.size());
    detail::check_cuda(cudaMemcpyAsync(to.device, to.host, to.bytes, cudaMemcpyHostToDevice, gpu_.stream()), "upload");
  }
  void wait() const {
    gpu_.synchronize();
    group_.check();
  }
  void expect(const Buffer& buffer, std::span<const std::byte> content, const std::string& what) const {
    expect(buffer, content, what, expect_bytes);
  }
  // `compare`: compares with the content.
  template <class Compare>
  void expect(const Buffer& buffer, std::span<const std::byte> content, const std::string& what,
              Compare compare) const {
    detail::check_cuda(cudaMemcpyAsync(buffer.host, buffer.device, buffer.bytes, cudaMemcpyDeviceToHost, gpu_.stream()),
                       "download");
    gpu_.synchronize();
    const std::span<const std::byte> all(buffer.host, buffer.bytes);
    const Bytes canaries(buffer.bytes, Guarded::kCanary);
    const std::size_t end = kGuard + content.size();
    compare(all.subspan(kGuard), content, what);
    expect_bytes(all, std::span(canaries).first(kGuard), "before the " + what);
    expect_bytes(all.subspan(end), std::span(canaries).subspan(end), "behind the " + what);
  }

  GpuRank& gpu_;
  const Group& group_;
  const MoeExchange& exchange_;
  std::uint32_t rank_;
  Launch launch_;
  Buffer input_, scales_, ids_, weights_, output_, output_scales_, counts_, offsets_, sources_, source_tokens_,
      rank_prefix_, local_ids_, local_weights_, expert_rows_, residual_, result_;
  std::vector<Buffer> payloads_, output_payloads_;
};

// One call's tensors, for exchange_in_rounds().
struct GpuMoeCall {
  GpuMoe& moe;
  const PreparedMoe& p;
  cudaStream_t stream;

  DispatchArgs dispatch() const { return moe.dispatch_args(p, stream); }
  CombineArgs combine(DispatchHandle handle) const { return moe.combine_args(p, handle, stream); }
  void check_rows(std::uint32_t end) const { moe.check_rows(p, end); }
  void make_results(std::uint32_t end) const { moe.make_results(p, end); }
  void check_dispatch() const { moe.check_dispatch(p); }
  void check_combine() const { moe.check_combine(p); }
};

// A dispatch and its combine, each checked.
inline void run_on_gpu_rank(const GpuMoe& moe, GpuRank& gpu, const PreparedMoe& p) {
  const DispatchHandle handle = moe.dispatch(p, gpu.stream());
  moe.check_dispatch(p);
  moe.combine(p, handle, gpu.stream());
  moe.check_combine(p);
}

// Called at the end of a rank's body, so that the world can serve other tests. After a rank has failed, free() would
// wait in vain; the world is then made anew.
inline void free_together(const GpuRank& gpu, MoeExchange& exchange) {
  if (gpu.meet()) exchange.free();
}

// Makes the calls of one exchange, twice over.
inline void expect_right(GpuWorld& world, const std::vector<MoeCase>& calls) {
  const std::vector<PreparedMoe> prepared = prepare_all(calls, static_cast<std::uint32_t>(world.size()));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, calls.front().args);
    GpuMoe moe(gpu, communicator, exchange, world.launch());
    for (int round = 0; round < 2; ++round) {
      for (const PreparedMoe& p : prepared) {
        moe.fill(p);
        run_on_gpu_rank(moe, gpu, p);
      }
    }
    free_together(gpu, exchange);
  }));
}

// Makes the calls once, with sends and waits on grids of other sizes. The send of a dispatch comes between the halves
// of the combine before it.
inline void expect_right_apart(GpuWorld& world, const std::vector<MoeCase>& calls) {
  const std::vector<PreparedMoe> prepared = prepare_all(calls, static_cast<std::uint32_t>(world.size()));
  expect_all_well(run_gpu_world(world, [&](Communicator& communicator, GpuRank& gpu, int) {
    MoeExchange exchange = MoeExchange::create(communicator, calls.front().args);
    GpuMoe moe[] = {{gpu, communicator, exchange, world.launch()}, {gpu, communicator, exchange, world.launch()}};
    DispatchHandle handles[2];
    for (std::size_t i = 0; i <= prepared.size(); ++i) {
      GpuMoe &now = moe[i % 2], &last = moe[1 - i % 2];
      const PreparedMoe* const p = i < prepared.size() ? &prepared[i] : nullptr;
      const PreparedMoe* const before = i > 0 ? &prepared[i - 1] : nullptr;
      if (p != nullptr) now.fill(*p);
      if (before != nullptr) exchange.combine_send(last.combine_args(*before, handles[1 - i % 2], gpu.stream(), 2));
      if (p != nullptr) handles[i % 2] = exchange.dispatch_send(now.dispatch_args(*p, gpu.stream(), false, 3));
      if (before != nullptr) exchange.combine_wait(last.combine_args(*before, handles[1 - i % 2], gpu.stream(), 4));
      if (p != nullptr) exchange.dispatch_wait(handles[i % 2], now.dispatch_args(*p, gpu.stream(), false, 2));
      if (before != nullptr) last.check_combine(*before);
      if (p != nullptr) now.check_dispatch(*p);
    }
    free_together(gpu, exchange);
  }));
}

}  // namespace weft::test
