#include "bench/layer_rival.hpp"

#include <algorithm>

#include "bench/layer_trace.hpp"
#include "comm/pairs.hpp"

namespace weft::cli {
namespace {

using Which = LayerPart::Which;

bool has_shared(const MoeLayerCall& call) {
  return call.shared != nullptr && call.tokens != 0;
}

}  // namespace

PeoLayer::PeoLayer(const Ranks::Seat& seat, RankDevice& device, const MoeExchangeArgs& exchange,
                   const MoeLayerArgs& layer, std::uint32_t rounds)
    : streams_(detail::make_side_streams(seat.communicator().world().cuda_device())),
      more_streams_(detail::make_side_streams(seat.communicator().world().cuda_device())) {
  for (std::uint32_t round = 0; round < rounds; ++round) {
    MoeExchange of_round = MoeExchange::create(seat.communicator(), exchange);
    MoeLayer its_layer = MoeLayer::create(of_round, layer);
    void* const workspace = device.allocate(its_layer.workspace_bytes());
    rounds_.push_back({std::move(of_round), std::move(its_layer), workspace});
  }
}

// A plain layer whose GEMMs are those of the round's experts.
MoeLayerCall PeoLayer::call_of(Round& round, const Args& args, std::uint32_t number) const {
  MoeLayerCall call = args.call;
  call.topk_ids = args.ids[number];
  call.workspace = round.workspace;
  call.shared = {};
  const std::uint32_t local = round.exchange.local_experts();
  const detail::ExpertRange experts = args.rounds.experts(number);
  const detail::ExpertRange span{std::min(experts.begin, local), std::min(experts.end, local)};
  const auto of_experts = [span](const GroupedGemm& gemm, ExpertGemm& known, const ExpertGemm& given) {
    known = given;
    ExpertGemm own = given;
    own.first_expert = span.begin;
    own.experts = span.end - span.begin;
    if (own.experts != 0) gemm(own);
  };
  call.up = [&args, &round, of_experts](const ExpertGemm& gemm) { of_experts(args.call.up, round.up, gemm); };
  call.down = [&args, &round, of_experts](const ExpertGemm& gemm) { of_experts(args.call.down, round.down, gemm); };
  if (args.call.observe) {
    call.observe = [&args, number](LayerPart part) {
      part.round = number;
      args.call.observe(part);
    };
  }
  return call;
}

DispatchArgs PeoLayer::dispatch_of(const Args& args, std::uint32_t number) const {
  const Round& round = rounds_[number];
  return {.input = args.call.input,
          .topk_ids = args.ids[number],
          .topk_weights = args.call.topk_weights,
          .tokens = args.call.tokens,
          .most_tokens = args.call.most_tokens,
          .output = const_cast<void*>(round.up.input),
          .output_scales = const_cast<void*>(round.up.input_scales),
          .counts = const_cast<std::int32_t*>(round.up.counts),
          .launch = {.cluster = args.call.cluster}};
}

// The sums of the rounds before are a round's residual. The last one is the output.
CombineArgs PeoLayer::combine_of(const Args& args, std::uint32_t number, const DispatchHandle& handle) const {
  const auto count = static_cast<std::uint32_t>(args.ids.size());
  const auto sum_of = [&](std::uint32_t i) { return (count - 1 - i) % 2 == 0 ? args.call.output : args.spare; };
  const void* const first = has_shared(args.call) ? args.shared_rows : args.call.residual;
  return {.handle = handle,
          .input = rounds_[number].down.output,
          .residual = number != 0 ? sum_of(number - 1) : first,
          .output = sum_of(number),
          .launch = {.cluster = args.call.cluster}};
}

void PeoLayer::enqueue_shared(const Args& args) const {
  if (!has_shared(args.call)) return;
  const Stream stream = streams_->stream(2);
  make_part(args.call.observe, {.which = Which::shared, .stream = stream}, [&] {
    args.call.shared({.input = args.call.input,
                      .scales = args.call.scales,
                      .residual = args.call.residual,
                      .output = args.shared_rows,
                      .tokens = args.call.tokens,
                      .hidden = rounds_.front().exchange.args().hidden,
                      .num_sms = args.call.shared_num_sms,
                      .stream = stream});
  });
}

// Dispatches, experts and the sends of combine. The waits of combine have yet to come.
std::vector<CombineArgs> PeoLayer::enqueue_rounds(const Args& args) {
  const auto count = static_cast<std::uint32_t>(args.ids.size());
  const Stream main = args.call.stream, sending = streams_->stream(0), back = streams_->stream(1);
  const Stream taking = args.method == 3 ? more_streams_->stream(0) : sending;
  const int half = detail::whole_pairs(std::max(2, (args.sms + 1) / 2), {.cluster = args.call.cluster});
  const int beside = args.method != 3 || args.sms == 0 ? args.sms : half;
  streams_->order(main, sending);
  if (has_shared(args.call)) streams_->order(main, streams_->stream(2));
  std::vector<DispatchArgs> dispatches;
  std::vector<DispatchHandle> handles;
  const auto send = [&](std::uint32_t i) {
    dispatches.push_back(dispatch_of(args, i));
    dispatches.back().stream = sending;
    dispatches.back().launch.blocks = args.method == 1 || i == 0 ? 0 : beside;
    make_part(args.call.observe, {.which = Which::dispatch_send, .round = i, .stream = sending},
              [&] { handles.push_back(rounds_[i].exchange.dispatch_send(dispatches.back())); });
  };
  for (std::uint32_t i = 0; args.method == 1 && i < count; ++i) send(i);
  std::vector<CombineArgs> combines;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (args.method != 1) send(i);
    if (i == 0) enqueue_shared(args);
    Round& round = rounds_[i];
    if (taking != sending) streams_->order(sending, taking);
    dispatches[i].stream = taking;
    dispatches[i].launch.blocks = i == 0 ? 0 : beside;
    make_part(args.call.observe, {.which = Which::dispatch_wait, .round = i, .stream = taking},
              [&] { round.exchange.dispatch_wait(handles[i], dispatches[i]); });
    streams_->order(taking, main);
    round.layer.run_experts(call_of(round, args, i));
    streams_->order(main, back);
    combines.push_back(combine_of(args, i, handles[i]));
    combines.back().stream = back;
    combines.back().launch.blocks = i + 1 == count ? 0 : beside;
    make_part(args.call.observe, {.which = Which::combine_send, .round = i, .stream = back},
              [&] { round.exchange.combine_send(combines.back()); });
  }
  return combines;
}

void PeoLayer::run(const Args& args) {
  const auto count = static_cast<std::uint32_t>(args.ids.size());
  const Stream back = streams_->stream(1);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (rounds_[i].up.input == nullptr) rounds_[i].layer.run(call_of(rounds_[i], args, i));
  }
  std::vector<CombineArgs> combines = enqueue_rounds(args);
  if (has_shared(args.call)) streams_->order(streams_->stream(2), back);
  for (std::uint32_t i = 0; i < count; ++i) {
    combines[i].launch.blocks = 0;  // as rounds' last wait
    make_part(args.call.observe, {.which = Which::combine_wait, .round = i, .stream = back},
              [&] { rounds_[i].exchange.combine_wait(combines[i]); });
  }
  streams_->order(back, args.call.stream);
}

std::vector<DispatchHandle> PeoLayer::dispatch(const Args& args) {
  std::vector<DispatchHandle> handles;
  for (std::uint32_t i = 0; i < args.ids.size(); ++i) {
    DispatchArgs of_round = dispatch_of(args, i);
    of_round.stream = args.call.stream;
    of_round.discard = true;
    of_round.launch.blocks = args.sms;
    handles.push_back(rounds_[i].exchange.dispatch(of_round));
  }
  return handles;
}

void PeoLayer::combine(const Args& args, const std::vector<DispatchHandle>& handles) {
  for (std::uint32_t i = 0; i < handles.size(); ++i) {
    CombineArgs of_round = combine_of(args, i, handles[i]);
    of_round.stream = args.call.stream;
    of_round.launch.blocks = args.sms;
    rounds_[i].exchange.combine(of_round);
  }
}

}  // namespace weft::cli
