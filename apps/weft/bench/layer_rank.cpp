#include "bench/layer_rank.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
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
          .cast = RowCast::fp8,
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

// e4m3 of small numbers, none of them NaN.
std::vector<std::uint8_t> random_numbers(std::size_t count, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::uint8_t> numbers(count);
  for (std::uint8_t& number : numbers) number = static_cast<std::uint8_t>((random() & 0x80) | (random() % 0x40));
  return numbers;
}

}  // namespace

LayerRank::LayerRank(Ranks& ranks, const Ranks::Seat& seat, const LayerShape& shape, std::uint32_t most_tokens,
                     const std::vector<std::uint32_t>& rounds, GemmTile tile)
    : shape_(shape),
      rank_(static_cast<std::uint32_t>(seat.rank())),
      most_virtual_(most_virtual_of(shape, shape.ranks, most_tokens)),
      group_(seat.communicator().world().state()),
      device_(open_rank_device(ranks, seat)),
      exchange_(MoeExchange::create(seat.communicator(), exchange_of(shape, most_virtual_))),
      layer_(MoeLayer::create(exchange_, {.intermediate = shape.intermediate, .down_cast = RowCast::fp8})) {
  gemms_on_gpu_ = ranks.device() == Device::cuda;
  gemm_args_ = {.device = seat.communicator().world().cuda_device(),
                .experts = shape.local(),
                .hidden = shape.hidden,
                .intermediate = shape.intermediate,
                .tile = tile};
  const std::size_t up = std::size_t{2} * shape.intermediate * shape.hidden, down = up / 2, all = up + down;
  constexpr std::size_t kBlock = std::size_t{16} << 20;
  const std::vector<std::uint8_t> numbers = random_numbers(std::min(kBlock, all * shape.local()), rank_ + 1);
  std::vector<float> scales(all / 128 / 128 * shape.local());
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = (1.0f + static_cast<float>(i % 7) / 8) / 64.0f;
  for (std::uint32_t i = 0; i < kLayers; ++i) {
    Layer layer{};
    auto* const memory = static_cast<std::byte*>(take(all * shape.local()));
    for (std::size_t at = 0; at < all * shape.local(); at += numbers.size())
      device_->upload(memory + at, numbers.data(), std::min(numbers.size(), all * shape.local() - at));
    auto* const of_scales = static_cast<float*>(take(scales.size() * sizeof(float)));
    device_->upload(of_scales, scales.data(), scales.size() * sizeof(float));
    layer.up = {memory, of_scales};
    layer.down = {memory + up * shape.local(), of_scales + up / 128 / 128 * shape.local()};
    layer.ids = take(std::size_t{most_virtual_} * shape.top_k * 4);
    layer.some_ids = take(std::size_t{most_virtual_} * shape.top_k * 4);
    layer.weights = take(std::size_t{most_virtual_} * shape.top_k * 4);
    layer.firsts = take((std::size_t{most_tokens} + 1) * 4);
    for (const std::uint32_t count : rounds) {
      for (std::uint32_t round = 0; round < count; ++round)
        layer.ids_of_rounds[count].push_back(take(std::size_t{most_virtual_} * shape.top_k * 4));
    }
    layers_.push_back(std::move(layer));
  }
  input_ = take(std::size_t{most_virtual_} * shape.hidden * 2);
  workspace_ = take(layer_.workspace_bytes());
  combined_ = take(std::size_t{most_virtual_} * shape.hidden * 2);
  output_ = take(std::size_t{most_tokens} * shape.hidden * 2);
  if (rounds.empty()) return;
  spare_ = take(std::size_t{most_virtual_} * shape.hidden * 2);
  peo_ = std::make_unique<PeoLayer>(seat, *device_, exchange_.args(),
                                    MoeLayerArgs{.intermediate = shape.intermediate, .down_cast = RowCast::fp8},
                                    std::ranges::max(rounds));
}

// The ids of each round's experts.
void LayerRank::upload_rounds(Layer& layer) {
  const std::uint32_t local = shape_.local();
  for (const auto& [count, rounds] : layer.ids_of_rounds) {
    for (std::uint32_t round = 0; round < count; ++round) {
      const detail::ExpertRange span = experts_of_round(local, count, round);
      std::vector<std::int32_t> ids = layer.tokens.ids;
      for (std::int32_t& id : ids) {
        const auto of_rank = static_cast<std::uint32_t>(id) % local;
        if (id >= 0 && (of_rank < span.begin || of_rank >= span.end)) id = -1;
      }
      device_->upload(rounds[round], ids.data(), ids.size() * 4);
    }
  }
}

// Virtual tokens of a token have its row.
void LayerRank::upload(std::uint32_t tokens) {
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
}

bool LayerRank::have_slots(const LayerShape& shape, std::uint32_t tokens) {
  return most_virtual_of(shape, shape.ranks, tokens) <= detail::kMaxSlotTokens;
}

ExpertRounds division_of(const LayerWay& way) {
  return {.count = way.rounds, .experts = way.experts.empty() ? nullptr : way.experts.data()};
}

detail::LayerStep step_of(const LayerWay& way, int processors) {
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

detail::LayerSize table_size(const LayerShape& shape) {
  return {
      .hidden = shape.hidden, .intermediate = shape.intermediate, .local_experts = shape.local(), .top_k = shape.top_k};
}

detail::LayerStep LayerRank::served(RowPath path) const {
  const detail::TuningTable* const table = group_.communicator().layer_tuning_for(group_.size(), table_size(shape_));
  if (table == nullptr) return {};
  return detail::layer_step_for(table->layer_steps, path == RowPath::slots ? virtual_tokens_ : exchange_.args().tokens);
}

int LayerRank::processors() const {
  return group_.communicator().fabric().processor().multiprocessors;
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
                gemms_->enqueue(gemm, of.up);
              },
          .down =
              [this, &of](const ExpertGemm& gemm) {
                last_down_ = gemm;
                gemms_->enqueue(gemm, of.down);
              },
          .stream = device_->stream(),
          .schedule = way.schedule,
          .rounds = division_of(way),
          .send_num_sms = sms.send,
          .recv_num_sms = sms.recv,
          .combine_send_num_sms = sms.combine_send,
          .combine_recv_num_sms = sms.combine_recv,
          .alone_by_size = true,
          .up_num_sms = sms.up,
          .down_num_sms = sms.down};
}

namespace {

void sum_rows_on_cpu(const SumRows& of, Stream) {
  const auto* const rows = static_cast<const std::uint16_t*>(of.rows);
  auto* const output = static_cast<std::uint16_t*>(of.output);
  for (std::size_t token = 0; token < of.tokens; ++token) {
    for (std::size_t i = 0; i < of.columns; ++i) {
      float sum = 0;
      for (std::int32_t row = of.firsts[token]; row < of.firsts[token + 1]; ++row)
        sum += detail::bf16_to_f32(rows[static_cast<std::size_t>(row) * of.columns + i]);
      output[token * of.columns + i] = detail::f32_to_bf16(sum);
    }
  }
}

}  // namespace

std::vector<TracedPart> LayerRank::trace(Ranks::Seat& seat, const LayerWay& way, std::uint32_t layer) {
  std::vector<TracedPart> parts;  // each is told in front of it and behind it, before the next one is
  MoeLayerCall call = call_of(way, layer);
  call.observe = [&](const LayerPart& part) {
    if (part.begins) parts.push_back({.which = part.which, .round = part.round});
    device_->mark(part.stream);
  };
  const std::vector<double> times = device_->trace(seat, [&] { layer_.run(call); });
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].begin = times[2 * i];
    parts[i].end = times[2 * i + 1];
  }
  return parts;
}

void LayerRank::run(const LayerWay& way, std::uint32_t layer) {
  if (way.peo != 0) {
    MoeLayerCall call = call_of(way, layer);
    call.schedule = LayerSchedule::plain;
    call.rounds = {};
    peo_->run({.call = call,
               .ids = layers_[layer % kLayers].ids_of_rounds.at(way.rounds),
               .method = way.peo,
               .sms = way.sms,
               .spare = spare_});
  } else {
    layer_.run(call_of(way, layer));
  }
  sum(layer);
}

void LayerRank::sum(std::uint32_t layer) {
  if (shape_.emulated == 0) return;
#if WEFT_WITH_CUDA
  const auto enqueue = gemms_on_gpu_ ? enqueue_sum_rows : sum_rows_on_cpu;
#else
  const auto enqueue = sum_rows_on_cpu;
#endif
  enqueue({.rows = combined_,
           .output = output_,
           .firsts = static_cast<const std::int32_t*>(layers_[layer % kLayers].firsts),
           .tokens = tokens_,
           .columns = shape_.hidden},
          device_->stream());
}

void LayerRank::clear() {
  device_->fill(output_, 0xff, std::size_t{tokens_} * shape_.hidden * 2);
}

std::vector<std::byte> LayerRank::output() {
  std::vector<std::byte> bytes(std::size_t{tokens_} * shape_.hidden * 2);
  device_->download(bytes.data(), output_, bytes.size());
  return bytes;
}

double LayerRank::weight_bytes() const {
  return 3.0 * shape_.intermediate * shape_.hidden * shape_.local();
}

// The first and the last row of an expert that has rows, and a few output columns of them.
std::string LayerRank::check_gemms(std::uint32_t layer) {
  const Layer& of = layers_[layer % kLayers];
  for (const bool is_up : {true, false}) {
    const ExpertGemm& gemm = is_up ? last_up_ : last_down_;
    const ExpertWeights& weights = is_up ? of.up : of.down;
    std::vector<std::int32_t> counts(shape_.local());
    device_->download(counts.data(), gemm.counts, counts.size() * 4);
    const auto found = std::ranges::find_if(counts, [](std::int32_t count) { return count > 0; });
    if (found == counts.end()) return {};
    const auto expert = static_cast<std::size_t>(found - counts.begin());
    for (const std::uint32_t place : {0u, std::min(static_cast<std::uint32_t>(*found), gemm.capacity) - 1}) {
      const std::string wrong = check_row(gemm, weights, expert, place);
      if (!wrong.empty()) return wrong;
    }
  }
  return {};
}

std::string LayerRank::check_row(const ExpertGemm& gemm, const ExpertWeights& weights, std::size_t expert,
                                 std::size_t place) {
  const std::size_t k = gemm.input_columns, n = gemm.output_columns, row = expert * gemm.capacity + place;
  const auto get = [&]<class T>(T, const void* from, std::size_t at, std::size_t count) {
    std::vector<T> data(count);
    device_->download(data.data(), static_cast<const T*>(from) + at, count * sizeof(T));
    return data;
  };
  const auto in = get(std::uint8_t{}, gemm.input, row * k, k);
  const auto out = get(std::uint16_t{}, gemm.output, row * n, n);
  const auto& number = e4m3_numbers();
  for (const std::size_t to : {std::size_t{0}, std::size_t{1}, n / 2 + 5, n - 1}) {
    const auto numbers = get(std::uint8_t{}, weights.numbers, (expert * n + to) * k, k);
    double sum = 0, most = 0;
    float scale = 0, weight_scale = 0;
    for (std::size_t i = 0; i < k; ++i) {
      const std::size_t group = i / 128;
      if (i % 128 == 0) {
        scale = get(float{}, gemm.input_scales, row * (k / 128) + group, 1)[0];
        weight_scale =
            get(float{}, weights.scales, expert * (n / 128) * (k / 128) + group * (n / 128) + to / 128, 1)[0];
      }
      const double term = double{number[in[i]]} * scale * number[numbers[i]] * weight_scale;
      sum += term;
      most += std::abs(term);
    }
    const double got = detail::bf16_to_f32(out[to]);
    if (!(std::abs(got - sum) <= most * 0x1p-9 + std::abs(sum) * 0x1p-8))
      return fmt::format("{} GEMM, expert {}, row {}, column {}: {} instead of {}",
                         gemm.which == ExpertGemm::Which::up ? "up" : "down", expert, place, to, got, sum);
  }
  return {};
}

}  // namespace weft::cli
