#include "bench/layer_rival.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "numeric/numeric.hpp"
#include "ops/moe/rounds.hpp"

namespace weft::cli {

detail::ExpertRange experts_of_round(std::uint32_t experts, std::uint32_t rounds, std::uint32_t round) {
  const detail::ExpertRange range = detail::divide(experts, {.count = rounds}).experts(round);
  return {range.begin, std::min(range.end, experts)};
}

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
  const auto rounds = static_cast<std::uint32_t>(args.ids.size());
  const detail::ExpertRange span =
      experts_of_round(static_cast<std::uint32_t>(round.exchange.local_experts()), rounds, number);
  const auto of_experts = [span](const GroupedGemm& gemm, ExpertGemm& known, const ExpertGemm& given) {
    known = given;
    ExpertGemm own = given;
    own.first_expert = span.begin;
    own.experts = span.end - span.begin;
    if (own.experts != 0) gemm(own);
  };
  call.up = [&args, &round, of_experts](const ExpertGemm& gemm) { of_experts(args.call.up, round.up, gemm); };
  call.down = [&args, &round, of_experts](const ExpertGemm& gemm) { of_experts(args.call.down, round.down, gemm); };
  return call;
}

// Dispatches, experts and the sends of combine. The waits of combine have yet to come.
std::vector<CombineArgs> PeoLayer::enqueue_rounds(const Args& args) {
  const auto count = static_cast<std::uint32_t>(args.ids.size());
  const Stream main = args.call.stream, sending = streams_->stream(0), back = streams_->stream(1);
  const Stream taking = args.method == 3 ? more_streams_->stream(0) : sending;
  const int beside = args.method != 3 || args.sms == 0 ? args.sms : std::max(2, (args.sms + 1) / 2);
  streams_->order(main, sending);
  std::vector<DispatchArgs> dispatches;
  std::vector<DispatchHandle> handles;
  const auto send = [&](std::uint32_t i) {
    const Round& round = rounds_[i];
    dispatches.push_back({.input = args.call.input,
                          .topk_ids = args.ids[i],
                          .topk_weights = args.call.topk_weights,
                          .tokens = args.call.tokens,
                          .most_tokens = args.call.most_tokens,
                          .output = const_cast<void*>(round.up.input),
                          .output_scales = const_cast<void*>(round.up.input_scales),
                          .counts = const_cast<std::int32_t*>(round.up.counts),
                          .stream = sending,
                          .launch = {.blocks = args.method == 1 || i == 0 ? 0 : beside}});
    handles.push_back(round.exchange.dispatch_send(dispatches.back()));
  };
  for (std::uint32_t i = 0; args.method == 1 && i < count; ++i) send(i);
  // The sums of the rounds before are a round's residual. The last one is the output.
  const auto sum_of = [&](std::uint32_t i) { return (count - 1 - i) % 2 == 0 ? args.call.output : args.spare; };
  std::vector<CombineArgs> combines;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (args.method != 1) send(i);
    Round& round = rounds_[i];
    if (taking != sending) streams_->order(sending, taking);
    dispatches[i].stream = taking;
    dispatches[i].launch.blocks = i == 0 ? 0 : beside;
    round.exchange.dispatch_wait(handles[i], dispatches[i]);
    streams_->order(taking, main);
    round.layer.run_experts(call_of(round, args, i));
    streams_->order(main, back);
    combines.push_back({.handle = handles[i],
                        .input = round.down.output,
                        .residual = i != 0 ? sum_of(i - 1) : args.call.residual,
                        .output = sum_of(i),
                        .stream = back,
                        .launch = {.blocks = i + 1 == count ? 0 : beside}});
    round.exchange.combine_send(combines.back());
  }
  return combines;
}

void PeoLayer::run(const Args& args) {
  const auto count = static_cast<std::uint32_t>(args.ids.size());
  for (std::uint32_t i = 0; i < count; ++i) {
    if (rounds_[i].up.input == nullptr) rounds_[i].layer.run(call_of(rounds_[i], args, i));
  }
  std::vector<CombineArgs> combines = enqueue_rounds(args);
  for (std::uint32_t i = 0; i < count; ++i) {
    combines[i].launch = {};  // as rounds' last wait
    rounds_[i].exchange.combine_wait(combines[i]);
  }
  streams_->order(streams_->stream(1), args.call.stream);
}

bool sums_are_near(const std::vector<std::byte>& got, const std::vector<std::byte>& wanted, std::size_t columns,
                   std::uint32_t terms) {
  const auto number = [](const std::vector<std::byte>& bytes, std::size_t i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, &bytes[2 * i], 2);
    return detail::bf16_to_f32(bits);
  };
  for (std::size_t row = 0; row < wanted.size() / 2 / columns; ++row) {
    float most = 0;
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i)
      most = std::max(most, std::abs(number(wanted, i)));
    for (std::size_t i = row * columns; i < (row + 1) * columns; ++i) {
      if (!(std::abs(number(wanted, i) - number(got, i)) <= most * static_cast<float>(terms) / 128))
        return false;  // nor is NaN near
    }
  }
  return true;
}

}  // namespace weft::cli
