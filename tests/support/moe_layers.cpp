#include "support/moe_layers.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>

#include "oracle/activation.hpp"
#include "oracle/fp8.hpp"
#include "oracle/moe.hpp"
#include "oracle/number.hpp"
#include "support/bytes.hpp"
#include "support/layer_weight.hpp"
#include "support/ranks.hpp"

namespace weft::test {

std::vector<LayerOrder> every_order(const MoeExchangeArgs& args, std::uint32_t ranks) {
  std::vector<LayerOrder> all{{LayerSchedule::plain, {}}};
  for (const Division& division : every_division(args, ranks)) {
    all.push_back({LayerSchedule::rounds, division});
    all.push_back({LayerSchedule::combine_rounds, division});
  }
  all.push_back({LayerSchedule::automatic, {}});
  return all;
}

std::vector<std::vector<LayerCase>> layers_of_every_kind(std::uint32_t ranks) {
  std::vector<std::vector<LayerCase>> all;
  const auto add = [&](const MoeExchangeArgs& args, RowCast down_cast) {
    all.push_back({{{.args = args, .tokens = {6}}, down_cast},
                   {{.args = args, .tokens = {0, 5, 1}, .choice = Choice::holes, .residual = true}, down_cast},
                   {{.args = args, .tokens = {4}, .choice = Choice::one_expert}, down_cast}});
  };
  MoeExchangeArgs args = small_exchange();
  args.hidden = 128;  // plain loops are slow
  args.capacity = ranks * args.tokens * args.top_k;
  add(args, RowCast::none);
  args.cast = RowCast::fp8;
  add(args, RowCast::fp8);
  args.scale_order = ScaleOrder::columns;
  args.capacity = (args.capacity + 3) / 4 * 4;
  add(args, RowCast::fp8);
  args.layout = RowLayout::expert_contiguous;
  args.capacity = 0;
  args.alignment = 4;
  args.scale_order = ScaleOrder::rows;
  add(args, RowCast::fp8_ue8m0);
  args.cast = RowCast::none;
  add(args, RowCast::none);
  args.path = RowPath::ring;
  add(args, RowCast::none);
  args.slot_tokens = args.tokens;  // calls by slots beside a ring
  add(args, RowCast::none);
  for (LayerCase& of : all.back()) of.call.most_tokens = args.tokens;
  return all;
}

MoeLayerCall layer_call(const DispatchArgs& there, const CombineArgs& back, const LayerOrder& order,
                        std::byte* memory) {
  constexpr std::uintptr_t kAlignment = 256;
  const auto begin = reinterpret_cast<std::uintptr_t>(memory);
  MoeLayerCall call{.input = there.input,
                    .topk_ids = there.topk_ids,
                    .topk_ids_are_i64 = there.topk_ids_are_i64,
                    .topk_weights = there.topk_weights,
                    .tokens = there.tokens,
                    .most_tokens = there.most_tokens,
                    .residual = back.residual,
                    .workspace = memory + (kAlignment - begin % kAlignment) % kAlignment,
                    .schedule = order.schedule};
  if (!order.division.empty()) call.rounds = rounds_of(order.division);
  return call;
}

namespace {

float scale_of(RowCast cast, ScaleOrder order, const ExpertGemm& gemm, std::size_t rows, std::size_t row,
               std::uint32_t column) {
  MoeExchangeArgs like;
  like.hidden = gemm.input_columns;
  like.cast = cast;
  like.scale_order = order;
  like.layout = gemm.layout;
  const oracle::MoeRules rules(like);
  const auto* const scales = static_cast<const std::uint8_t*>(gemm.input_scales);
  const std::size_t bytes = rules.arriving_scale_bytes() / (gemm.input_columns / kScaleColumns);
  const std::size_t first = column / kScaleColumns * bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    bits |= std::uint32_t{scales[oracle::scale_place(rules, gemm.capacity, rows, row, first + i)]} << 8 * i;
  }
  return bytes == 1 ? std::ldexp(1.0f, static_cast<int>(bits) - 127) : std::bit_cast<float>(bits);
}

}  // namespace

CpuLayer::CpuLayer(const MoeExchange& exchange, const LayerCase& of, const PreparedMoe& p, std::uint32_t rank)
    : CpuLayer(exchange, of, p, rank, exchange) {}

CpuLayer::CpuLayer(const MoeExchange& exchange, const LayerCase& of, const PreparedMoe& p, std::uint32_t rank,
                   const MoeExchange& numbers)
    : exchange_(exchange),
      experts_(numbers.experts().begin(), numbers.experts().end()),
      layer_(MoeLayer::create(exchange, {.intermediate = kLayerMiddle, .down_cast = of.down_cast})),
      args_{.intermediate = kLayerMiddle, .down_cast = of.down_cast},
      p_(&p),
      rank_(rank),
      moe_(numbers, p, rank),
      workspace_(layer_.workspace_bytes() + 256) {
  fill(p);
}

void CpuLayer::fill(const PreparedMoe& p) {
  p_ = &p;
  moe_.fill(p);
  output_.assign(p.results[rank_].size(), Guarded::kCanary);
  made_.assign(exchange_.local_experts(), {});
  fill_bytes(workspace_, std::byte{0x5a});
}

MoeLayerCall CpuLayer::call(const LayerOrder& order) {
  MoeLayerCall call = layer_call(moe_.dispatch(), moe_.combine({}), order, workspace_.data());
  call.output = output_.data();
  call.up = [this](const ExpertGemm& of) { gemm(of); };
  call.down = [this](const ExpertGemm& of) { gemm(of); };
  return call;
}

std::span<const std::byte> CpuLayer::output() const {
  return output_;
}

void CpuLayer::gemm(const ExpertGemm& of) {
  const bool up = of.which == ExpertGemm::Which::up;
  const RowCast cast = up ? exchange_.args().cast : args_.down_cast;
  const std::size_t rows_of_all = exchange_.output_rows();
  for (std::uint32_t local = of.first_expert; local < of.first_expert + of.experts; ++local) {
    const std::uint32_t expert = experts_[local];
    const std::size_t begin = of.layout == RowLayout::expert_masked ? std::size_t{local} * of.capacity
                                                                    : static_cast<std::size_t>(of.offsets[local]);
    if (up) made_[local].resize(static_cast<std::size_t>(of.counts[local]));
    for (std::size_t place = 0; place < made_[local].size(); ++place) {
      const std::size_t row = begin + place;
      std::vector<float> in(of.input_columns);
      float scale = 0;
      for (std::uint32_t i = 0; i < of.input_columns; ++i) {
        const std::size_t at = row * of.input_columns + i;
        if (cast == RowCast::none) {
          in[i] = static_cast<float>(
              oracle::number_at({static_cast<const std::byte*>(of.input), (at + 1) * 2}, DataType::bf16, at));
        } else {
          if (i % kScaleColumns == 0) scale = scale_of(cast, exchange_.args().scale_order, of, rows_of_all, row, i);
          in[i] = static_cast<float>(oracle::number_of_e4m3(static_cast<const std::uint8_t*>(of.input)[at])) * scale;
        }
      }
      auto* const out = static_cast<std::byte*>(of.output) + row * of.output_columns * 2;
      for (std::uint32_t to = 0; to < of.output_columns; ++to) {
        float sum = 0;
        for (std::uint32_t i = 0; i < of.input_columns; ++i) sum += in[i] * layer_weight(up, expert, i, to);
        oracle::put({out, of.output_columns * std::size_t{2}}, DataType::bf16, to,
                    oracle::round_to(oracle::format_of(DataType::bf16), sum));
      }
      Made& made = made_[local][place];
      (up ? made.gate_up : made.result).assign(out, out + of.output_columns * std::size_t{2});
      if (!up) {
        made.middle.clear();
        for (const float value : in) {
          const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
          made.middle.insert(made.middle.end(), bytes, bytes + sizeof(value));
        }
      }
    }
  }
}

void CpuLayer::check_middle() const {
  MoeExchangeArgs like;
  like.cast = args_.down_cast;
  const oracle::Scales scales = oracle::MoeRules(like).scales;
  for (std::uint32_t local = 0; local < made_.size(); ++local) {
    for (const Made& made : made_[local]) {
      const std::vector<oracle::RightBits> row =
          args_.down_cast == RowCast::none ? oracle::activated_row(DataType::bf16, made.gate_up)
                                           : oracle::activated_row(DataType::bf16, made.gate_up, kScaleColumns, scales);
      for (std::uint32_t i = 0; i < kLayerMiddle; ++i) {
        const std::uint64_t got = oracle::get(made.middle, DataType::f32, i);
        ensure(row[i].contain(got), fmt::format("column {} of the activation is {:x}, not {:x} to {:x}", i, got,
                                                row[i].nearest, row[i].farthest));
      }
    }
  }
}

void CpuLayer::give_results(std::vector<std::vector<Bytes>>& all) const {
  for (std::uint32_t local = 0; local < made_.size(); ++local) {
    std::vector<Bytes>& rows = all[experts_[local]];
    rows.clear();
    for (const Made& made : made_[local]) rows.push_back(made.result);
  }
}

void CpuLayer::check_output(const std::vector<std::vector<Bytes>>& all) const {
  const auto made = [&](std::uint32_t expert, std::size_t place) { return all[expert][place]; };
  const Bytes wanted = oracle::combined(p_->call.args, p_->rank_of, p_->routing, p_->placed, made, rank_,
                                        p_->tokens[rank_].count, p_->residuals[rank_]);
  expect_bytes(output_, wanted, "the layer's output");
}

}  // namespace weft::test
