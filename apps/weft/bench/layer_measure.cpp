#include "bench/layer_measure.hpp"

#include <fmt/format.h>

#include "bench/layer_figures.hpp"
#include "bench/rank_bench.hpp"
#include "weft/error.hpp"

namespace weft::cli {

LayerShape layer_shape_of(const ModelShape& model, int ranks, std::uint32_t emulated, std::int64_t intermediate) {
  const auto local_of = emulated != 0 ? emulated : static_cast<std::uint32_t>(ranks);
  const std::int64_t middle = intermediate != 0 ? intermediate : model.intermediate;
  const auto reject = [&](const std::string& why) { throw Error(Errc::invalid_argument, "moe-layer: " + why); };
  if (middle == 0) reject(model.name + " has no width of experts: give --intermediate");
  if (model.row_width() % 128 != 0 || middle % 128 != 0)
    reject(fmt::format("rows of {} and {} columns: e4m3 with scales asks for multiples of 128", model.row_width(),
                       middle));
  if (model.num_experts % local_of != 0)
    reject(fmt::format("{} experts cannot be divided among {} ranks", model.num_experts, local_of));
  if (emulated != 0 && static_cast<int>(emulated) < ranks)
    reject(fmt::format("--emulate-ep {} is less than the {} ranks", emulated, ranks));
  return {.hidden = static_cast<std::uint32_t>(model.row_width()),
          .intermediate = static_cast<std::uint32_t>(middle),
          .experts = static_cast<std::uint32_t>(model.num_experts),
          .top_k = static_cast<std::uint32_t>(model.top_k),
          .ranks = static_cast<std::uint32_t>(ranks),
          .emulated = emulated};
}

void check_gemms_for(const Ranks& ranks, const LayerShape& shape, std::int64_t most_tokens) {
  constexpr double kMostOnCpu = 1e9;
  const double products = 3.0 * shape.hidden * shape.intermediate * shape.top_k * static_cast<double>(most_tokens);
  if (ranks.device() == Device::cpu && products > kMostOnCpu)
    throw Error(
        Errc::invalid_argument,
        fmt::format("moe-layer: CPU ranks multiply in plain loops, and {:.1g} products of a layer are more than "
                    "{:.1g}: take fewer --tokens, or --config with smaller experts",
                    products, kMostOnCpu));
  if (ranks.device() == Device::cuda && !has_cutlass_gemms())
    throw Error(Errc::invalid_argument,
                "moe-layer: this program has no GEMMs for GPUs: configure it with WEFT_CUTLASS, a folder of CUTLASS's "
                "sources");
}

std::vector<std::vector<std::byte>> plain_outputs(Ranks::Seat& seat, LayerRank& rank) {
  std::vector<std::vector<std::byte>> outputs;
  for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer) {
    rank.clear();
    seat.barrier();
    rank.device().run(seat, [&] { rank.run({.path = RowPath::ring}, layer); });
    outputs.push_back(rank.output());
  }
  return outputs;
}

std::string compare_way(Ranks::Seat& seat, LayerRank& rank, const LayerWay& way,
                        const std::vector<std::vector<std::byte>>& plain) {
  std::string wrong;
  for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer) {
    rank.clear();
    seat.barrier();
    rank.device().run(seat, [&] { rank.run(way, layer); });
    const bool right = way.peo != 0 ? sums_are_near(rank.output(), plain[layer], rank.hidden(), way.rounds)
                                    : rank.output() == plain[layer];
    if (!right && wrong.empty())
      wrong = fmt::format("{} in {} rounds by {}: layer {} differs from one part after the other", schedule_of(way),
                          way.rounds, weft::name(way.path), layer);
  }
  return wrong;
}

std::vector<std::vector<double>> time_part(Ranks::Seat& seat, LayerRank& rank, TimedPart part, const LayerWay& way,
                                           int samples) {
  const SomeRows rows = part == TimedPart::first_dispatch ? SomeRows::first
                        : part == TimedPart::last_combine ? SomeRows::last
                                                          : SomeRows::all;
  const bool dispatches = part == TimedPart::dispatch || part == TimedPart::first_dispatch;
  const bool combines = part == TimedPart::combine || part == TimedPart::last_combine;
  std::uint32_t layer = 0;
  DispatchHandle handle;
  if (rows != SomeRows::all) rank.choose_rows(way, rows);
  seat.barrier();
  if (combines) rank.device().run(seat, [&] { handle = rank.dispatch(way, layer, rows); });
  const auto operation = [&](int) {
    if (part == TimedPart::layer) rank.run(way, layer++);
    if (part == TimedPart::exchange) rank.exchange(way, layer++);
    if (part == TimedPart::experts) rank.experts(way, layer++);
    if (part == TimedPart::up) rank.up(layer++);
    if (part == TimedPart::down) rank.down(way, layer++);
    if (part == TimedPart::sum) rank.sum(layer++);
    if (dispatches) rank.dispatch(way, layer++, rows);
    if (combines) rank.combine(way, handle);
  };
  seat.barrier();
  auto times = seat.gather(rank.device().time(seat, {.method = methods_of(seat.communicator().device()).front(),
                                                     .samples = samples,
                                                     .operation = operation,
                                                     .poison = [&] { rank.clear(); }}));
  if (dispatches || combines) {
    seat.barrier();
    rank.device().run(seat, [&] { rank.settle(); });
  }
  return times;
}

}  // namespace weft::cli
