// A layer of experts: where its parts keep their rows, and the order in which they run.
#include "weft/moe_layer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "comm/capture.hpp"
#include "fabric/side_streams.hpp"
#include "ops/layer/silu_mul_work.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "ops/moe/exchange_state.hpp"
#include "ops/moe/rounds.hpp"

namespace weft {
namespace detail {

// Byte offsets in the workspace.
struct LayerMemory {
  std::size_t rows, scales, counts, offsets, gate_up, middle, middle_scales, results, bytes;
};

class LayerState {
 public:
  LayerState(const MoeExchange& exchange, const Group& group, const ExchangeState& state, const MoeLayerArgs& args)
      : exchange(exchange),
        group(group),
        args(args),
        middle(middle_of(state.shape(), args)),
        memory(lay_out(state)),
        streams(make_side_streams(state.dispatch_channel().communicator().fabric().cuda_device())) {}

  static ExchangeShape middle_of(ExchangeShape shape, const MoeLayerArgs& args) {
    shape.columns = args.intermediate;
    shape.cast = args.down_cast;
    shape.groups = args.down_cast == RowCast::none ? 0 : args.intermediate / kScaleColumns;
    if (shape.scale_order == ScaleOrder::columns) shape.scale_columns = plan_columns(shape);
    return shape;
  }
  LayerMemory lay_out(const ExchangeState& state) const {
    LayerMemory all{};
    const auto take = [&](std::size_t bytes) {
      const std::size_t at = all.bytes;
      all.bytes += aligned_to_line(bytes);
      return at;
    };
    const std::size_t rows = state.shape().rows, local = state.shape().local;
    const OutputRow given = output_row(state.args());
    MoeExchangeArgs of_middle = state.args();
    of_middle.hidden = args.intermediate;
    of_middle.cast = args.down_cast;
    of_middle.type = RowType::bf16;
    of_middle.scale_bytes = 0;
    const OutputRow made = output_row(of_middle);
    all.rows = take(rows * given.bytes);
    all.scales = take(rows * given.scale_bytes);
    all.counts = take(local * sizeof(std::int32_t));
    all.offsets = take((local + 1) * sizeof(std::int32_t));
    all.gate_up = take(rows * args.intermediate * 2 * 2);
    all.middle = take(rows * made.bytes);
    all.middle_scales = take(rows * made.scale_bytes);
    all.results = take(rows * state.args().hidden * 2);
    return all;
  }

  const MoeExchange exchange;
  const Group group;
  const MoeLayerArgs args;
  const ExchangeShape middle;  // of the rows between the GEMMs
  const LayerMemory memory;
  const std::unique_ptr<SideStreams> streams;
};

}  // namespace detail

namespace {

using detail::ExchangeShape;
using detail::ExpertRange;
using detail::LayerState;
using detail::require;
using detail::Rounds;

struct SiluMulWords {
  static constexpr std::string_view kKind = "silu_mul";
  std::uint32_t columns, first, end;
  std::string text() const { return fmt::format("silu_mul of {} columns, experts {} to {}", columns, first, end - 1); }
};

// The activation of some experts' rows.
class SiluMul : public detail::GroupCall {
 public:
  static constexpr const char* kRange = "weft::silu_mul";
  static constexpr bool kPeersWait = false, kInTurn = false;
  SiluMul(const Group& group, Stream stream, const detail::SiluMulWork& work, DataType type)
      : GroupCall(group, stream), work_(work), type_(type) {}

  void check() {}
  detail::CallName plan(bool) const {
    return {detail::fingerprint("silu_mul", work_.shape.columns),
            SiluMulWords{work_.shape.columns, work_.experts.begin, work_.experts.end}};
  }
  template <class Run>
  void each_step(Run run) const {
    const bool cast = work_.shape.cast != RowCast::none;
    constexpr int kThreads = 256;
    run({.call = {},
         .bound = detail::find_kernel(detail::SiluMulQuery{type_, cast, work_.shape.scale_order}).with(work_),
         .blocks = channel().communicator().fabric().max_blocks(),
         .threads = kThreads});
  }

 private:
  const detail::SiluMulWork& work_;
  DataType type_;
};

// One call: its tensors in the workspace, and its parts.
class Run {
 public:
  Run(const LayerState& layer, const ExchangeShape& shape, const MoeLayerCall& call, const Rounds& rounds)
      : layer_(layer), shape_(shape), call_(call), rounds_(rounds) {}

  void make_experts() const {
    for (std::uint32_t round = 0; round < rounds_.count; ++round) make_experts_of(round);
  }
  void make() const {
    if (call_.schedule == LayerSchedule::plain) return plain();
    if (call_.schedule == LayerSchedule::rounds) return in_rounds();
    combine_in_rounds();
  }

 private:
  using Which = LayerPart::Which;
  // Makes a part, and tells the observer.
  template <class Make>
  void part(Which which, std::uint32_t round, Stream stream, Make make) const {
    const auto tell = [&](bool begins) {
      if (call_.observe) call_.observe({.which = which, .round = round, .begins = begins, .stream = stream});
    };
    tell(true);
    make();
    tell(false);
  }

  void plain() const {
    const DispatchHandle handle = dispatch();
    make_experts_of(0);
    part(Which::combine, 0, call_.stream,
         [&] { layer_.exchange.combine(combine_args(handle, call_.stream, call_.combine_recv_num_sms)); });
  }
  DispatchHandle dispatch() const {
    DispatchHandle handle;
    part(Which::dispatch, 0, call_.stream,
         [&] { handle = layer_.exchange.dispatch(dispatch_args(call_.stream, call_.recv_num_sms)); });
    return handle;
  }

  void in_rounds() const {
    const Stream there = layer_.streams->stream(0), back = layer_.streams->stream(1);
    layer_.streams->order(call_.stream, there);
    DispatchArgs sent = dispatch_args(there, call_.send_num_sms);
    DispatchHandle handle;
    part(Which::dispatch_send, 0, there, [&] { handle = layer_.exchange.dispatch_send(sent); });
    sent.launch.blocks = call_.recv_num_sms;
    for (std::uint32_t round = 0; round < rounds_.count; ++round) {
      sent.round = round;
      part(Which::dispatch_wait, round, there, [&] { layer_.exchange.dispatch_wait(handle, sent); });
      layer_.streams->order(there, call_.stream);
      make_experts_of(round);
      send_back(handle, round);
    }
    end(handle, back);
  }

  void make_experts_of(std::uint32_t round) const {
    const ExpertRange experts = of_round(round);
    gemm(ExpertGemm::Which::up, experts, round);
    activate(experts, round);
    gemm(ExpertGemm::Which::down, experts, round);
  }

  // Behind the down GEMM of the round.
  void send_back(const DispatchHandle& handle, std::uint32_t round) const {
    const Stream back = layer_.streams->stream(1);
    layer_.streams->order(call_.stream, back);
    CombineArgs args = combine_args(handle, back, call_.combine_send_num_sms);
    args.round = round;
    part(Which::combine_send, round, back, [&] { layer_.exchange.combine_send(args); });
  }
  void end(const DispatchHandle& handle, Stream back) const {
    part(Which::combine_wait, 0, back,
         [&] { layer_.exchange.combine_wait(combine_args(handle, back, call_.combine_recv_num_sms)); });
    layer_.streams->order(back, call_.stream);
  }

  void combine_in_rounds() const {
    const DispatchHandle handle = dispatch();
    const ExpertRange all{0, shape_.local};
    gemm(ExpertGemm::Which::up, all, 0);
    activate(all, 0);
    for (std::uint32_t round = 0; round < rounds_.count; ++round) {
      gemm(ExpertGemm::Which::down, of_round(round), round);
      send_back(handle, round);
    }
    end(handle, layer_.streams->stream(1));
  }

  ExpertRange of_round(std::uint32_t round) const {
    const ExpertRange experts = rounds_.experts(round);
    return {std::min(experts.begin, shape_.local), std::min(experts.end, shape_.local)};
  }

  std::byte* at(std::size_t offset) const { return static_cast<std::byte*>(call_.workspace) + offset; }
  std::int32_t* counts() const { return reinterpret_cast<std::int32_t*>(at(layer_.memory.counts)); }
  std::int32_t* offsets() const {
    const bool contiguous = shape_.layout == RowLayout::expert_contiguous;
    return contiguous ? reinterpret_cast<std::int32_t*>(at(layer_.memory.offsets)) : nullptr;
  }

  DispatchArgs dispatch_args(Stream stream, int blocks) const {
    return {.input = call_.input,
            .scales = call_.scales,
            .topk_ids = call_.topk_ids,
            .topk_ids_are_i64 = call_.topk_ids_are_i64,
            .topk_weights = call_.topk_weights,
            .tokens = call_.tokens,
            .most_tokens = call_.most_tokens,
            .output = at(layer_.memory.rows),
            .output_scales = at(layer_.memory.scales),
            .counts = counts(),
            .offsets = offsets(),
            .stream = stream,
            .tag = call_.tag,
            .launch = {.blocks = blocks},
            .rounds = call_.rounds};
  }
  CombineArgs combine_args(const DispatchHandle& handle, Stream stream, int blocks) const {
    return {.handle = handle,
            .input = at(layer_.memory.results),
            .residual = call_.residual,
            .output = call_.output,
            .stream = stream,
            .tag = call_.tag,
            .launch = {.blocks = blocks},
            .rounds = call_.rounds};
  }

  void gemm(ExpertGemm::Which which, const ExpertRange& experts, std::uint32_t round) const {
    if (experts.begin == experts.end) return;
    const bool up = which == ExpertGemm::Which::up;
    const detail::LayerMemory& memory = layer_.memory;
    const std::uint32_t hidden = layer_.exchange.args().hidden, middle = layer_.args.intermediate;
    const ExpertGemm made{.which = which,
                          .round = round,
                          .first_expert = experts.begin,
                          .experts = experts.end - experts.begin,
                          .input = at(up ? memory.rows : memory.middle),
                          .input_scales = at(up ? memory.scales : memory.middle_scales),
                          .output = at(up ? memory.gate_up : memory.results),
                          .input_columns = up ? hidden : middle,
                          .output_columns = up ? 2 * middle : hidden,
                          .layout = shape_.layout,
                          .capacity = shape_.capacity,
                          .counts = counts(),
                          .offsets = offsets(),
                          .num_sms = up ? call_.up_num_sms : call_.down_num_sms,
                          .stream = call_.stream};
    part(up ? Which::up : Which::down, round, call_.stream, [&] { (up ? call_.up : call_.down)(made); });
  }
  void activate(const ExpertRange& experts, std::uint32_t round) const {
    if (experts.begin == experts.end) return;
    const detail::SiluMulWork work{.shape = layer_.middle,
                                   .input = at(layer_.memory.gate_up),
                                   .output = at(layer_.memory.middle),
                                   .scales = at(layer_.memory.middle_scales),
                                   .counts = counts(),
                                   .offsets = offsets(),
                                   .experts = experts};
    SiluMul call(layer_.group, call_.stream, work, layer_.exchange.args().combine_type);
    part(Which::activation, round, call_.stream, [&] { detail::make_call(call); });
  }

  const LayerState& layer_;
  const ExchangeShape& shape_;
  const MoeLayerCall& call_;
  const Rounds& rounds_;
};

}  // namespace

MoeLayer MoeLayer::create(const MoeExchange& exchange, const MoeLayerArgs& args) {
  const detail::ExchangeState& state = *exchange.state_;
  require(state.shape().layout != RowLayout::rank_major,
          "exchange: its layout is rank-major; a layer asks for masked or contiguous");
  const bool cast = args.down_cast != RowCast::none;
  const std::uint32_t step = cast ? kScaleColumns : 8;
  require(args.intermediate != 0 && args.intermediate % step == 0 && args.intermediate <= 1u << 20,
          "intermediate: {} is not a multiple of {} between {} and {}", args.intermediate, step, step, 1u << 20);
  return MoeLayer(std::make_shared<LayerState>(exchange, exchange.group_, state, args));
}

std::size_t MoeLayer::workspace_bytes() const {
  return state_->memory.bytes;
}

namespace {

Rounds checked(const detail::ExchangeState& exchange, const MoeLayerCall& call) {
  if (detail::Capture::current() != nullptr)
    throw Error(Errc::unsupported, "a recording cannot hold a layer, whose GEMMs are the caller's");
  require(call.up != nullptr && call.down != nullptr, "up, down: both GEMMs must be given");
  require(call.workspace != nullptr && reinterpret_cast<std::uintptr_t>(call.workspace) % 256 == 0,
          "workspace: {} is null or not aligned to 256 bytes", call.workspace);
  require(call.schedule != LayerSchedule::plain || call.rounds.count == 1,
          "rounds.count: {} is not 1, and the schedule is plain", call.rounds.count);
  return detail::plan_rounds(exchange.shape(), exchange.takes_ring(call.most_tokens), call.most_tokens, call.rounds);
}

}  // namespace

void MoeLayer::run(const MoeLayerCall& call) const {
  const auto layer = state_;
  const detail::ExchangeState& exchange = *layer->exchange.state_;
  const Rounds rounds = [&] {
    try {
      return checked(exchange, call);
    } catch (const Error& error) {
      // Peers wait in the layer's dispatch, unless it is recorded.
      if (detail::Capture::current() == nullptr) layer->exchange.refuse_dispatch(error.what(), call.stream);
      throw;
    }
  }();
  Run(*layer, exchange.shape(), call, rounds).make();
}

void MoeLayer::run_experts(const MoeLayerCall& call) const {
  const auto layer = state_;
  const detail::ExchangeState& exchange = *layer->exchange.state_;
  const Rounds rounds = checked(exchange, call);
  Run(*layer, exchange.shape(), call, rounds).make_experts();
}

}  // namespace weft
