#include "ops/layer/layer_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/fingerprint.hpp"
#include "comm/call.hpp"
#include "comm/capture.hpp"
#include "fabric/side_streams.hpp"
#include "ops/layer/layer_order.hpp"
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
  SiluMul(const Group& group, const MoeLayerCall& layer, const SiluMulWork& work, DataType type)
      : GroupCall(group, layer.stream), layer_(layer), work_(work), type_(type) {}

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
         .blocks = blocks_of_activation(layer_, channel().communicator().fabric().max_blocks()),
         .threads = kThreads});
  }

 private:
  const MoeLayerCall& layer_;
  const SiluMulWork& work_;
  DataType type_;
};

// A part of a call that may fail. Peers wait for this rank's sums, or for its dispatch: of this call or, if the sums
// are on their way, of the next one. They are told why it gives up, and where.
struct FailingPart {
  std::string words;
  bool sums_wait;
  void tell(const LayerState& layer, Stream stream, std::string_view reason) const noexcept {
    const std::string text = fmt::format("layer: {}: {}", words, reason.substr(0, reason.find('\n')));
    if (sums_wait) {
      layer.exchange.refuse_combine(text, stream);
    } else {
      layer.exchange.refuse_dispatch(text, stream);
    }
  }
};

// `give_up` hears of an exception of `make`, which goes on.
template <class Make, class GiveUp>
void making(Make make, GiveUp give_up) {
  try {
    make();
  } catch (const std::exception& error) {
    give_up(error.what(), dynamic_cast<const Error*>(&error));
    throw;
  } catch (...) {
    give_up("an exception", nullptr);
    throw;
  }
}

// One call: its tensors in the workspace, and its parts, which LayerOrder enqueues.
class LayerRun {
 public:
  LayerRun(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds)
      : layer_(layer), shape_(layer.state.shape()), call_(call), rounds_(rounds) {
    if (Capture::current() != nullptr) recorded_ = std::make_shared<const MoeLayerCall>(call);
  }

  void make_experts() {
    peers_wait_ = false;
    for (std::uint32_t round = 0; round < rounds_.count; ++round) experts(round);
  }
  void make() {
    LayerOrder<LayerRun> order(*this, rounds_.count);
    if (call_.schedule == LayerSchedule::rounds) return order.in_rounds();
    if (call_.schedule == LayerSchedule::combine_rounds) return order.combine_in_rounds();
    order.plain();
  }
  // Whether an exception of make() comes from a part that Weft makes, and not from the caller's functions.
  bool weft_failed() const { return weft_runs_; }
  // After an exception of make(). The caller's stream comes behind what the layer's streams have got.
  void give_up(std::string_view reason, bool tell) const noexcept {
    join();
    if (tell && !tells_itself_) failing().tell(layer_, call_.stream, reason);
  }

  bool has_shared() const { return call_.shared != nullptr && call_.tokens != 0; }
  void order(LayerStream before, LayerStream behind) {
    layer_.streams->order(stream(before), stream(behind));
    if (before == LayerStream::callers) forked_[static_cast<std::size_t>(number_of(behind))] = true;
  }
  void dispatch(LayerStream on) {
    part(Which::dispatch, 0, stream(on),
         [&](Stream at) { handle_ = layer_.exchange.dispatch(dispatch_args(at, blocks(Which::dispatch))); });
  }
  void dispatch_send(LayerStream on) {
    part(Which::dispatch_send, 0, stream(on),
         [&](Stream at) { handle_ = layer_.exchange.dispatch_send(dispatch_args(at, blocks(Which::dispatch_send))); });
  }
  void dispatch_wait(LayerStream on, std::uint32_t round) {
    part(Which::dispatch_wait, round, stream(on), [&](Stream at) {
      DispatchArgs args = dispatch_args(at, blocks(Which::dispatch_wait, round));
      args.round = round;
      layer_.exchange.dispatch_wait(handle_, args);
    });
  }
  void combine(LayerStream on) {
    part(Which::combine, 0, stream(on),
         [&](Stream at) { layer_.exchange.combine(combine_args(at, blocks(Which::combine))); });
  }
  void combine_send(LayerStream on, std::uint32_t round) {
    part(Which::combine_send, round, stream(on), [&](Stream at) {
      CombineArgs args = combine_args(at, blocks(Which::combine_send, round));
      args.round = round;
      layer_.exchange.combine_send(args);
    });
  }
  void combine_wait(LayerStream on) {
    part(Which::combine_wait, 0, stream(on),
         [&](Stream at) { layer_.exchange.combine_wait(combine_args(at, blocks(Which::combine_wait))); });
  }
  void shared_expert(LayerStream on) {
    part(Which::shared, 0, stream(on), [&](Stream at) {
      const SharedExpert made{.input = call_.input,
                              .scales = call_.scales,
                              .residual = call_.residual,
                              .output = in_workspace(layer_.memory.shared),
                              .tokens = call_.tokens,
                              .hidden = layer_.exchange.args().hidden,
                              .num_sms = call_.shared_num_sms,
                              .stream = at};
      by_caller([made](const MoeLayerCall& call) { call.shared(made); });
    });
  }
  void experts(std::uint32_t round) {
    const ExpertRange of = of_round(round);
    gemm(ExpertGemm::Which::up, of, round);
    activate(of, round);
    gemm(ExpertGemm::Which::down, of, round);
  }
  void up() {
    const ExpertRange all{0, shape_.local};
    gemm(ExpertGemm::Which::up, all, 0);
    activate(all, 0);
  }
  void down(std::uint32_t round) { gemm(ExpertGemm::Which::down, of_round(round), round); }

 private:
  using Which = LayerPart::Which;
  // The number of one of the layer's own streams.
  static constexpr int number_of(LayerStream stream) { return static_cast<int>(stream) - 1; }
  Stream stream(LayerStream which) const {
    return which == LayerStream::callers ? call_.stream : layer_.streams->stream(number_of(which));
  }

  // Makes a part, and tells the observer.
  template <class Make>
  void part(Which which, std::uint32_t round, Stream stream, Make make) {
    const auto tell = [&](bool begins) {
      const LayerPart told{.which = which, .round = round, .begins = begins, .stream = stream};
      if (call_.observe) by_caller([told](const MoeLayerCall& call) { call.observe(told); });
    };
    at_ = which;
    round_ = round;
    tell(true);
    tells_itself_ = tells_peers(which, round);
    weft_runs_ = which != Which::up && which != Which::down && which != Which::shared;
    make(stream);
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
  // Calls functions of the caller: now, or in each replay, which then tells peers of a failure.
  template <class Call>
  void by_caller(Call call) {
    if (recorded_ == nullptr) return call(call_);
    run_held(layer_.group, HostStep([&layer = layer_, recorded = recorded_, at = failing(), told = peers_wait_, call] {
               making([&] { call(*recorded); },
                      [&](std::string_view reason, const Error*) {
                        if (told) at.tell(layer, recorded->stream, reason);
                      });
             }));
  }
  FailingPart failing() const {
    const bool of_experts = at_ == Which::up || at_ == Which::activation || at_ == Which::down;
    const bool divided = at_ == Which::dispatch_wait || at_ == Which::combine_send ||
                         (of_experts && (at_ == Which::down || call_.schedule == LayerSchedule::rounds));
    const std::string round =
        divided && rounds_.count != 1 ? fmt::format(", round {} of 0 to {}", round_, rounds_.count - 1) : "";
    return {.words = fmt::format("{}{}", name(at_), round), .sums_wait = sent_ && !returned_};
  }
  void join() const noexcept try {
    for (int number = 0; number < SideStreams::kCount; ++number) {
      if (forked_[static_cast<std::size_t>(number)])
        layer_.streams->order(layer_.streams->stream(number), call_.stream);
    }
  } catch (const std::exception&) {
    // The call's own error is already on its way to the caller.
  }
  int blocks(Which which, std::uint32_t round = 0) const {
    return blocks_of({.call = call_, .which = which, .round = round, .rounds = rounds_.count});
  }
  ExpertRange of_round(std::uint32_t round) const {
    const ExpertRange experts = rounds_.experts(round);
    return {std::min(experts.begin, shape_.local), std::min(experts.end, shape_.local)};
  }

  std::byte* in_workspace(std::size_t offset) const { return static_cast<std::byte*>(call_.workspace) + offset; }
  std::int32_t* counts() const { return reinterpret_cast<std::int32_t*>(in_workspace(layer_.memory.counts)); }
  std::int32_t* offsets() const {
    const bool contiguous = shape_.layout == RowLayout::expert_contiguous;
    return contiguous ? reinterpret_cast<std::int32_t*>(in_workspace(layer_.memory.offsets)) : nullptr;
  }

  DispatchArgs dispatch_args(Stream stream, int blocks) const {
    return {.input = call_.input,
            .scales = call_.scales,
            .topk_ids = call_.topk_ids,
            .topk_ids_are_i64 = call_.topk_ids_are_i64,
            .topk_weights = call_.topk_weights,
            .tokens = call_.tokens,
            .most_tokens = call_.most_tokens,
            .map = call_.map,
            .output = in_workspace(layer_.memory.rows),
            .output_scales = in_workspace(layer_.memory.scales),
            .counts = counts(),
            .offsets = offsets(),
            .stream = stream,
            .tag = call_.tag,
            .launch = {.blocks = blocks, .cluster = call_.cluster},
            .rounds = call_.rounds};
  }
  CombineArgs combine_args(Stream stream, int blocks) const {
    return {.handle = handle_,
            .input = in_workspace(layer_.memory.results),
            .residual = has_shared() ? in_workspace(layer_.memory.shared) : call_.residual,
            .output = call_.output,
            .stream = stream,
            .tag = call_.tag,
            .launch = {.blocks = blocks, .cluster = call_.cluster},
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
                          .input = in_workspace(up ? memory.rows : memory.middle),
                          .input_scales = in_workspace(up ? memory.scales : memory.middle_scales),
                          .output = in_workspace(up ? memory.gate_up : memory.results),
                          .input_columns = up ? hidden : middle,
                          .output_columns = up ? 2 * middle : hidden,
                          .layout = shape_.layout,
                          .capacity = shape_.capacity,
                          .counts = counts(),
                          .offsets = offsets(),
                          .num_sms = up ? call_.up_num_sms : call_.down_num_sms,
                          .stream = call_.stream};
    part(up ? Which::up : Which::down, round, call_.stream,
         [&](Stream) { by_caller([made, up](const MoeLayerCall& call) { (up ? call.up : call.down)(made); }); });
  }
  void activate(const ExpertRange& experts, std::uint32_t round) {
    if (experts.begin == experts.end) return;
    const SiluMulWork work{.shape = layer_.middle,
                           .input = in_workspace(layer_.memory.gate_up),
                           .output = in_workspace(layer_.memory.middle),
                           .scales = in_workspace(layer_.memory.middle_scales),
                           .counts = counts(),
                           .offsets = offsets(),
                           .experts = experts};
    SiluMul call(layer_.group, call_, work, layer_.exchange.args().combine_type);
    part(Which::activation, round, call_.stream, [&](Stream) { make_call(call); });
  }

  const LayerState& layer_;
  const ExchangeShape& shape_;
  const MoeLayerCall& call_;
  const Rounds& rounds_;
  std::shared_ptr<const MoeLayerCall> recorded_;  // its functions, for a recording that holds the layer; or null
  bool peers_wait_ = true;
  DispatchHandle handle_;
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
  making([&] { run.make(); },
         [&](std::string_view reason, const Error* error) {
           // A call of this exchange that failed has a record, which ends the peers.
           const bool on_record = error != nullptr && run.weft_failed() && error->fault().rank >= 0;
           run.give_up(reason, !on_record);
         });
}
void run_experts(const LayerState& layer, const MoeLayerCall& call, const Rounds& rounds) {
  LayerRun(layer, call, rounds).make_experts();
}

}  // namespace weft::detail
