#include "ops/layer/layer_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <string>
#include <string_view>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "fabric/side_streams.hpp"
#include "ops/layer/part_blocks.hpp"
#include "ops/layer/silu_mul_work.hpp"

namespace weft::detail {
namespace {

struct SiluMulWords {
  static constexpr std::string_view kKind = "silu_mul";
  std::uint32_t columns, first, end;
  std::string text() const { return fmt::format("silu_mul of {} columns, experts {} to {}", columns, first, end - 1); }
};

// The activation of some experts' rows.
class SiluMul : public GroupCall {
 public:
  static constexpr const char* kRange = "weft::silu_mul";
  static constexpr bool kPeersWait = false, kInTurn = false;
  SiluMul(const Group& group, Stream stream, const SiluMulWork& work, DataType type)
      : GroupCall(group, stream), work_(work), type_(type) {}

  void check() {}
  CallName plan(bool) const {
    return {fingerprint("silu_mul", work_.shape.columns),
            SiluMulWords{work_.shape.columns, work_.experts.begin, work_.experts.end}};
  }
  template <class Run>
  void each_step(Run run) const {
    const bool cast = work_.shape.cast != RowCast::none;
    constexpr int kThreads = 256;
    run({.call = {},
         .bound = find_kernel(SiluMulQuery{type_, cast, work_.shape.scale_order}).with(work_),
         .blocks = channel().communicator().fabric().max_blocks(),
         .threads = kThreads});
  }

 private:
  const SiluMulWork& work_;
  DataType type_;
};

// One call: its tensors in the workspace, and its parts.
class LayerRun {
 public:
  LayerRun(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds)
      : layer_(layer), shape_(layer.state.shape()), call_(call), rounds_(rounds) {}

  void make_experts() {
    for (std::uint32_t round = 0; round < rounds_.count; ++round) make_experts_of(round);
  }
  void make() {
    if (call_.schedule == LayerSchedule::rounds) return in_rounds();
    if (call_.schedule == LayerSchedule::combine_rounds) return combine_in_rounds();
    plain();
  }
  // Whether an exception of make() comes from a part that Weft makes, and not from the caller's functions.
  bool weft_failed() const { return weft_runs_; }
  // After an exception of make(). Peers wait for this rank's sums, or for its dispatch: of this call or, if the sums
  // are on their way, of the next one. They are told why it gives up, and where. The caller's stream comes behind what
  // the layer's streams have got.
  void give_up(std::string_view reason, bool tell) const noexcept {
    join();
    if (!tell || tells_itself_) return;
    const std::string text = words_of_failure(reason);
    if (sent_ && !returned_) {
      layer_.exchange.refuse_combine(text, call_.stream);
    } else {
      layer_.exchange.refuse_dispatch(text, call_.stream);
    }
  }

 private:
  using Which = LayerPart::Which;
  // The layer's streams: of dispatch and of combine in rounds, and of the shared expert.
  static constexpr int kThere = 0, kBack = 1, kShared = 2;

  bool has_shared() const { return call_.shared != nullptr && call_.tokens != 0; }
  // Makes a part, and tells the observer.
  template <class Make>
  void part(Which which, std::uint32_t round, Stream stream, Make make) {
    const auto tell = [&](bool begins) {
      if (call_.observe) call_.observe({.which = which, .round = round, .begins = begins, .stream = stream});
    };
    at_ = which;
    round_ = round;
    tell(true);
    tells_itself_ = tells_peers(which, round);
    weft_runs_ = which != Which::up && which != Which::down && which != Which::shared;
    make();
    tells_itself_ = weft_runs_ = false;
    sent_ |= which == Which::dispatch || which == Which::dispatch_send;
    returned_ |= which == Which::combine || (which == Which::combine_send && round + 1 == rounds_.count);
    tell(false);
  }
  // Whether the exchange tells peers that it has rejected this part (see detail::make_call).
  static bool tells_peers(Which which, std::uint32_t round) {
    return which == Which::dispatch || which == Which::dispatch_send || which == Which::combine ||
           (which == Which::combine_send && round == 0);
  }
  std::string words_of_failure(std::string_view reason) const {
    const bool of_experts = at_ == Which::up || at_ == Which::activation || at_ == Which::down;
    const bool divided = at_ == Which::dispatch_wait || at_ == Which::combine_send ||
                         (of_experts && (at_ == Which::down || call_.schedule == LayerSchedule::rounds));
    const std::string round =
        divided && rounds_.count != 1 ? fmt::format(", round {} of 0 to {}", round_, rounds_.count - 1) : "";
    return fmt::format("layer: {}{}: {}", name(at_), round, reason.substr(0, reason.find('\n')));
  }
  void join() const noexcept try {
    for (int number = 0; number < SideStreams::kCount; ++number) {
      if (forked_[static_cast<std::size_t>(number)])
        layer_.streams->order(layer_.streams->stream(number), call_.stream);
    }
  } catch (const std::exception&) {
    // The call's own error is already on its way to the caller.
  }
  void fork(int number) {
    layer_.streams->order(call_.stream, layer_.streams->stream(number));
    forked_[static_cast<std::size_t>(number)] = true;
  }

  // The shared expert begins beside what follows; its rows are there behind join_shared().
  void fork_shared() {
    if (has_shared()) fork(kShared);
  }
  void join_shared(Stream behind) {
    if (has_shared()) layer_.streams->order(layer_.streams->stream(kShared), behind);
  }
  void make_shared() {
    if (!has_shared()) return;
    const SharedExpert made{.input = call_.input,
                            .scales = call_.scales,
                            .residual = call_.residual,
                            .output = at(layer_.memory.shared),
                            .tokens = call_.tokens,
                            .hidden = layer_.exchange.args().hidden,
                            .num_sms = call_.shared_num_sms,
                            .stream = layer_.streams->stream(kShared)};
    part(Which::shared, 0, made.stream, [&] { call_.shared(made); });
  }

  void plain() {
    const DispatchHandle handle = dispatch();
    make_experts_of(0);
    join_shared(call_.stream);
    part(Which::combine, 0, call_.stream,
         [&] { layer_.exchange.combine(combine_args(handle, call_.stream, blocks(Which::combine))); });
  }
  DispatchHandle dispatch() {
    fork_shared();
    DispatchHandle handle;
    part(Which::dispatch, 0, call_.stream,
         [&] { handle = layer_.exchange.dispatch(dispatch_args(call_.stream, blocks(Which::dispatch))); });
    make_shared();
    return handle;
  }

  void in_rounds() {
    const Stream there = layer_.streams->stream(kThere);
    fork_shared();
    fork(kThere);
    DispatchArgs sent = dispatch_args(there, blocks(Which::dispatch_send));
    DispatchHandle handle;
    part(Which::dispatch_send, 0, there, [&] { handle = layer_.exchange.dispatch_send(sent); });
    make_shared();
    for (std::uint32_t round = 0; round < rounds_.count; ++round) {
      sent.round = round;
      sent.launch.blocks = blocks(Which::dispatch_wait, round);
      part(Which::dispatch_wait, round, there, [&] { layer_.exchange.dispatch_wait(handle, sent); });
      layer_.streams->order(there, call_.stream);
      make_experts_of(round);
      send_back(handle, round);
    }
    end(handle);
  }

  void make_experts_of(std::uint32_t round) {
    const ExpertRange experts = of_round(round);
    gemm(ExpertGemm::Which::up, experts, round);
    activate(experts, round);
    gemm(ExpertGemm::Which::down, experts, round);
  }

  // Behind the down GEMM of the round.
  void send_back(const DispatchHandle& handle, std::uint32_t round) {
    const Stream back = layer_.streams->stream(kBack);
    fork(kBack);
    CombineArgs args = combine_args(handle, back, blocks(Which::combine_send, round));
    args.round = round;
    part(Which::combine_send, round, back, [&] { layer_.exchange.combine_send(args); });
  }
  void end(const DispatchHandle& handle) {
    const Stream back = layer_.streams->stream(kBack);
    join_shared(back);
    part(Which::combine_wait, 0, back,
         [&] { layer_.exchange.combine_wait(combine_args(handle, back, blocks(Which::combine_wait))); });
    layer_.streams->order(back, call_.stream);
  }

  void combine_in_rounds() {
    const DispatchHandle handle = dispatch();
    const ExpertRange all{0, shape_.local};
    gemm(ExpertGemm::Which::up, all, 0);
    activate(all, 0);
    for (std::uint32_t round = 0; round < rounds_.count; ++round) {
      gemm(ExpertGemm::Which::down, of_round(round), round);
      send_back(handle, round);
    }
    end(handle);
  }

  int blocks(Which which, std::uint32_t round = 0) const {
    return blocks_of({.call = call_, .which = which, .round = round, .rounds = rounds_.count});
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
            .residual = has_shared() ? at(layer_.memory.shared) : call_.residual,
            .output = call_.output,
            .stream = stream,
            .tag = call_.tag,
            .launch = {.blocks = blocks},
            .rounds = call_.rounds};
  }

  void gemm(ExpertGemm::Which which, const ExpertRange& experts, std::uint32_t round) {
    if (experts.begin == experts.end) return;
    const bool up = which == ExpertGemm::Which::up;
    const LayerMemory& memory = layer_.memory;
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
  void activate(const ExpertRange& experts, std::uint32_t round) {
    if (experts.begin == experts.end) return;
    const SiluMulWork work{.shape = layer_.middle,
                           .input = at(layer_.memory.gate_up),
                           .output = at(layer_.memory.middle),
                           .scales = at(layer_.memory.middle_scales),
                           .counts = counts(),
                           .offsets = offsets(),
                           .experts = experts};
    SiluMul call(layer_.group, call_.stream, work, layer_.exchange.args().combine_type);
    part(Which::activation, round, call_.stream, [&] { make_call(call); });
  }

  const LayerState& layer_;
  const ExchangeShape& shape_;
  const MoeLayerCall& call_;
  const Rounds& rounds_;
  // The part that is being made, for a failure's words.
  Which at_ = Which::dispatch;
  std::uint32_t round_ = 0;
  bool tells_itself_ = false;  // a rejection of it has told the peers
  bool weft_runs_ = false;
  bool sent_ = false;      // the dispatch, which peers do not wait for any more
  bool returned_ = false;  // all sums, likewise
  std::array<bool, SideStreams::kCount> forked_{};
};

}  // namespace

void run_layer(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds) {
  LayerRun run(layer, call, rounds);
  try {
    run.make();
  } catch (const Error& error) {
    // A call of this exchange that failed has a record, which ends the peers.
    run.give_up(error.what(), !run.weft_failed() || error.fault().rank < 0);
    throw;
  } catch (const std::exception& error) {
    run.give_up(error.what(), true);
    throw;
  } catch (...) {
    run.give_up("an exception", true);
    throw;
  }
}
void run_experts(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds) {
  LayerRun(layer, call, rounds).make_experts();
}

}  // namespace weft::detail
