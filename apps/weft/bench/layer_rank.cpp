#include "bench/layer_rank.hpp"

#include <algorithm>
#include <bit>
#include <random>

#include "bench/sum_rows.hpp"
#include "comm/state.hpp"
#include "numeric/numeric.hpp"

namespace weft::cli {
namespace {

MoeExchangeArgs exchange_of(const LayerShape& shape, std::uint32_t most_virtual) {
  return {.tokens = most_virtual,
          .hidden = shape.hidden,
          .experts = shape.exchanged_experts(),
          .top_k = shape.top_k,
          .cast = cast_of(shape.type),
          .capacity = shape.ranks * most_virtual,
          .path = RowPath::ring,
          .ring_rows = std::max(32u, std::bit_ceil(most_virtual)),  // for rounds
          .slot_tokens = std::min(most_virtual, detail::kMaxSlotTokens)};
}

std::uint32_t most_virtual_of(const LayerShape& shape, std::uint32_t rank_count, std::uint32_t tokens) {
  std::uint32_t most = 1;
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer)
      most = std::max(most, make_layer_tokens(shape, rank, tokens, layer).count());
  }
  return most;
}

}  // namespace

LayerRank::LayerRank(Ranks& ranks, const Ranks::Seat& seat, const Args& args)
    : shape_(args.shape),
      rank_(static_cast<std::uint32_t>(seat.rank())),
      most_virtual_(most_virtual_of(shape_, shape_.ranks, args.tokens)),
      cluster_(args.cluster),
      group_(seat.communicator().world().state()),
      device_(open_rank_device(ranks, seat)),
      exchange_(MoeExchange::create(seat.communicator(), exchange_of(shape_, most_virtual_))),
      layer_(MoeLayer::create(exchange_, {.intermediate = shape_.intermediate, .down_cast = cast_of(shape_.type)})) {
  gemms_on_gpu_ = ranks.device() == Device::cuda;
  gemm_args_ = {.device = seat.communicator().world().cuda_device(),
                .experts = shape_.local(),
                .hidden = shape_.hidden,
                .intermediate = shape_.intermediate,
                .tile = args.tile,
                .type = shape_.type};
  const std::size_t ids_bytes = std::size_t{most_virtual_} * shape_.top_k * 4;
  const std::size_t rows_bytes = std::size_t{most_virtual_} * shape_.hidden * 2;
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    Layer layer{};
    layer.experts =
        make_weights(*device_, {shape_.hidden, shape_.intermediate, shape_.local(), shape_.type}, rank_ + 1);
    layer.ids = take(ids_bytes);
    layer.some_ids = take(ids_bytes);
    layer.weights = take(ids_bytes);
    layer.firsts = take((std::size_t{args.tokens} + 1) * 4);
    for (const LayerRounds& division : args.peo) {
      for (std::uint32_t round = 0; round < division.rounds; ++round)
        layer.ids_of_rounds[division].push_back(take(ids_bytes));
    }
    layers_.push_back(std::move(layer));
  }
  input_ = take(rows_bytes);
  workspace_ = take(layer_.workspace_bytes());
  combined_ = take(rows_bytes);
  output_ = take(std::size_t{args.tokens} * shape_.hidden * 2);
  if (shape_.shared != 0) {
    shared_ = std::make_unique<SharedLayer>(*device_, seat.communicator(),
                                            SharedLayer::Args{.shape = shape_,
                                                              .layers = kLayers,
                                                              .tokens = args.tokens,
                                                              .virtual_tokens = most_virtual_,
                                                              .seed = rank_ + 101,
                                                              .tile = args.tile});
  }
  if (args.peo.empty()) return;
  spare_ = take(rows_bytes);
  const auto most = std::ranges::max_element(args.peo, {}, &LayerRounds::rounds);
  peo_ = std::make_unique<PeoLayer>(
      seat, *device_, exchange_.args(),
      MoeLayerArgs{.intermediate = shape_.intermediate, .down_cast = cast_of(shape_.type)}, most->rounds);
}

// The ids of each round's experts.
void LayerRank::upload_rounds(Layer& layer) {
  for (const auto& [division, rounds] : layer.ids_of_rounds) {
    for (std::uint32_t round = 0; round < division.rounds; ++round) {
      const auto ids = ids_of_round(shape_, layer.tokens, divided(shape_, division).experts(round));
      device_->upload(rounds[round], ids.data(), ids.size() * 4);
    }
  }
}

// Each virtual token has a row of its own, as every layer has other virtual tokens.
void LayerRank::upload(Ranks::Seat& seat, std::uint32_t tokens) {
  tokens_ = tokens;
  virtual_tokens_ = most_virtual_of(shape_, shape_.ranks, tokens);
  gemm_args_.rows_per_expert = shape_.rows_per_expert(tokens);
  gemms_ = gemms_on_gpu_ ? open_cutlass_gemms(gemm_args_) : open_plain_gemms();
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    Layer& layer = layers_[i];
    layer.tokens = make_layer_tokens(shape_, rank_, tokens, i);
    device_->upload(layer.ids, layer.tokens.ids.data(), layer.tokens.ids.size() * 4);
    device_->upload(layer.weights, layer.tokens.weights.data(), layer.tokens.weights.size() * 4);
    device_->upload(layer.firsts, layer.tokens.firsts.data(), layer.tokens.firsts.size() * 4);
    upload_rounds(layer);
  }
  std::vector<std::uint16_t> rows(std::size_t{most_virtual_} * shape_.hidden);
  for (std::size_t row = 0; row < most_virtual_; ++row) {
    std::mt19937 random(static_cast<std::uint32_t>(row) * 31 + rank_);
    for (std::size_t i = 0; i < shape_.hidden; ++i)
      rows[row * shape_.hidden + i] = detail::f32_to_bf16((static_cast<float>(random() % 2001) - 1000) / 500.0f);
  }
  device_->upload(input_, rows.data(), rows.size() * 2);
  if (shared_ == nullptr) return;
  std::vector<const LayerTokens*> of_layers;
  for (const Layer& layer : layers_) of_layers.push_back(&layer.tokens);
  shared_->upload(seat, input_, of_layers);
}

bool LayerRank::have_slots(const LayerShape& shape, std::uint32_t tokens) {
  return most_virtual_of(shape, shape.ranks, tokens) <= detail::kMaxSlotTokens;
}

ExpertRounds division_of(const LayerWay& way) {
  return {.count = way.rounds, .experts = way.experts.empty() ? nullptr : way.experts.data()};
}

detail::LayerStep step_of(const LayerWay& way, int processors) {
  if (way.numbers) return {.schedule = way.schedule, .rounds = way.rounds, .experts = way.experts, .sms = *way.numbers};
  const bool in_rounds = way.schedule == LayerSchedule::rounds;
  const int parts = in_rounds && way.peo == 0 ? 2 : 1;  // beside the experts
  const int rest = way.sms != 0 ? std::max(processors - parts * way.sms, 0) : 0;
  const bool beside = way.schedule != LayerSchedule::plain;
  return {.schedule = way.schedule,
          .rounds = way.rounds,
          .experts = way.experts,
          .sms = {.send = in_rounds ? way.sms : 0,
                  .recv = in_rounds ? way.sms : 0,
                  .combine_send = beside ? way.sms : 0,
                  .combine_recv = 0,
                  .up = in_rounds ? rest : 0,
                  .down = beside ? rest : 0}};
}

detail::LayerSize table_size(const LayerShape& shape, RowPath path) {
  return {.hidden = shape.hidden,
          .intermediate = shape.intermediate,
          .local_experts = shape.local(),
          .top_k = shape.top_k,
          .path = path};
}

detail::LayerStep LayerRank::served(RowPath path) const {
  const detail::TuningTable* const table =
      group_.communicator().layer_tuning_for(group_.size(), table_size(shape_, path));
  if (table == nullptr) return {};
  return detail::token_step_for(table->layer_steps, path == RowPath::slots ? virtual_tokens_ : exchange_.args().tokens);
}

int LayerRank::processors() const {
  return group_.communicator().fabric().processor().multiprocessors;
}

SharedRows LayerRank::shared_of(const LayerWay& way, std::uint32_t layer) {
  if (shared_ == nullptr || way.shared_first) return {};
  return [this, layer](const SharedExpert& expert) {
    last_shared_ = expert;
    shared_->run(expert, layer);
  };
}

MoeLayerCall LayerRank::call_of(const LayerWay& way, std::uint32_t layer) {
  Layer& of = layers_[layer % kLayers];
  const detail::LayerSms sms = step_of(way, processors()).sms;
  return {.input = input_,
          .topk_ids = of.ids,
          .topk_weights = static_cast<const float*>(of.weights),
          .tokens = of.tokens.count(),
          .most_tokens = way.path == RowPath::slots ? virtual_tokens_ : 0,
          .output = shape_.emulated != 0 ? combined_ : output_,
          .workspace = workspace_,
          .up =
              [this, &of](const ExpertGemm& gemm) {
                last_up_ = gemm;
                gemms_->enqueue(gemm, of.experts.up);
              },
          .down =
              [this, &of](const ExpertGemm& gemm) {
                last_down_ = gemm;
                gemms_->enqueue(gemm, of.experts.down);
              },
          .shared = shared_of(way, layer),
          .stream = device_->stream(),
          .schedule = way.schedule,
          .rounds = division_of(way),
          .send_num_sms = sms.send,
          .recv_num_sms = sms.recv,
          .combine_send_num_sms = sms.combine_send,
          .combine_recv_num_sms = sms.combine_recv,
          .alone_by_size = true,
          .cluster = cluster_,
          .up_num_sms = sms.up,
          .down_num_sms = sms.down,
          .shared_num_sms = sms.up};
}

std::vector<TracedPart> LayerRank::trace(Ranks::Seat& seat, const LayerWay& way, std::uint32_t layer) {
  std::vector<TracedPart> parts;  // each is told in front of it and behind it, before the next one is
  const LayerObserver observe = [&](const LayerPart& part) {
    if (part.begins) parts.push_back(traced(part, way.peo));
    device_->mark(part.stream);
  };
  const std::vector<double> times = device_->trace(seat, [&] { run_observed(way, layer, observe); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].begin = times[2 * i];
    parts[i].end = times[2 * i + 1];
  }
  return parts;
}

void LayerRank::run_observed(const LayerWay& way, std::uint32_t layer, const LayerObserver& observe) {
  if (way.peo != 0) {
    PeoLayer::Args args = peo_of(way, layer);
    args.call.observe = observe;
    return peo_->run(args);
  }
  MoeLayerCall call = call_of(way, layer);
  call.observe = observe;
  if (way.shared_first) {
    make_part(observe, {.which = LayerPart::Which::shared, .stream = call.stream}, [&] { shared(layer); });
    call.residual = last_shared_.output;
  }
  layer_.run(call);
}

void LayerRank::run(const LayerWay& way, std::uint32_t layer) {
  run_observed(way, layer, {});
  sum(layer);
}

PeoLayer::Args LayerRank::peo_of(const LayerWay& way, std::uint32_t layer) {
  MoeLayerCall call = call_of(way, layer);
  call.schedule = LayerSchedule::plain;
  call.rounds = {};
  return {.call = call,
          .rounds = rounds_of(way),
          .ids = layers_[layer % kLayers].ids_of_rounds.at(way.division()),
          .method = way.peo,
          .sms = way.sms,
          .spare = spare_,
          .shared_rows = last_shared_.output};
}

void LayerRank::run_reference(const LayerWay& way, std::uint32_t layer) {
  MoeLayerCall call = call_of({.path = RowPath::ring, .shared_first = true}, layer);
  if (shared_ != nullptr) {
    layer_.run(call_of({.path = RowPath::ring}, layer));  // tells where the shared expert's rows are
    shared(layer);
    call.residual = last_shared_.output;
  }
  if (way.peo == 0) {
    layer_.run(call);
  } else {
    for (void* const ids : layers_[layer % kLayers].ids_of_rounds.at(way.division())) {
      call.topk_ids = ids;
      layer_.run(call);
      call.residual = call.output;
    }
  }
  sum(layer);
}

void LayerRank::sum(std::uint32_t layer) {
  if (shape_.emulated == 0) return;
  sum_rows({.rows = combined_,
            .output = output_,
            .firsts = static_cast<const std::int32_t*>(layers_[layer % kLayers].firsts),
            .tokens = tokens_,
            .columns = shape_.hidden},
           kind(), device_->stream());
}

void LayerRank::clear() {
  device_->fill(output_, 0xff, std::size_t{tokens_} * shape_.hidden * 2);
}

std::vector<std::byte> LayerRank::output() {
  std::vector<std::byte> bytes(std::size_t{tokens_} * shape_.hidden * 2);
  device_->download(bytes.data(), output_, bytes.size());
  return bytes;
}

std::string LayerRank::check_gemms(std::uint32_t layer) {
  const LayerWeights& of = layers_[layer % kLayers].experts;
  std::string wrong = check_gemm(*device_, last_up_, of.up, shape_.local());
  if (wrong.empty()) wrong = check_gemm(*device_, last_down_, of.down, shape_.local());
  if (wrong.empty() && shared_ != nullptr) wrong = shared_->check(layer);
  return wrong;
}

}  // namespace weft::cli
