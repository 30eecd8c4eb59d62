#include "bench/layer_measure.hpp"

#include <fmt/format.h>

#include "bench/layer_figures.hpp"
#include "bench/rank_bench.hpp"
#include "weft/error.hpp"

namespace weft::cli {

namespace {

// Columns of rows are multiples of it: whole scales, or 16 bytes.
std::int64_t multiple_for(GemmType type) {
  return type == GemmType::fp8 ? 128 : 8;
}
std::string asked_by(GemmType type) {
  return fmt::format("{} asks for multiples of {}", type == GemmType::fp8 ? "e4m3 with scales" : "bf16",
                     multiple_for(type));
}

}  // namespace

LayerShape layer_shape_of(const ModelShape& model, int ranks, std::uint32_t emulated, std::int64_t intermediate,
                          GemmType type) {
  const auto local_of = emulated != 0 ? emulated : static_cast<std::uint32_t>(ranks);
  const std::int64_t middle = intermediate != 0 ? intermediate : model.intermediate;
  const auto reject = [&](const std::string& why) { throw Error(Errc::invalid_argument, "moe-layer: " + why); };
  if (middle == 0) reject(model.name + " has no width of experts: give --intermediate");
  if (model.row_width() % multiple_for(type) != 0 || middle % multiple_for(type) != 0)
    reject(fmt::format("rows of {} and {} columns: {}", model.row_width(), middle, asked_by(type)));
  if (model.num_experts % local_of != 0)
    reject(fmt::format("{} experts cannot be divided among {} ranks", model.num_experts, local_of));
  if (emulated != 0 && static_cast<int>(emulated) < ranks)
    reject(fmt::format("--emulate-ep {} is less than the {} ranks", emulated, ranks));
  return {.hidden = static_cast<std::uint32_t>(model.row_width()),
          .intermediate = static_cast<std::uint32_t>(middle),
          .experts = static_cast<std::uint32_t>(model.num_experts),
          .top_k = static_cast<std::uint32_t>(model.top_k),
          .ranks = static_cast<std::uint32_t>(ranks),
          .emulated = emulated,
          .type = type};
}

std::uint32_t shared_columns_of(const ModelShape& model, std::int64_t asked, GemmType type) {
  const std::int64_t columns = asked != 0 ? asked : model.shared_intermediate;
  const auto reject = [&](const std::string& why) { throw Error(Errc::invalid_argument, "moe-layer: " + why); };
  if (model.row_width() != model.hidden)
    reject(fmt::format("--shared: experts of {} have rows of {} columns, and its shared expert has {}", model.name,
                       model.row_width(), model.hidden));
  if (columns == 0) reject(model.name + " has no width of a shared expert: give --shared-intermediate");
  if (columns % multiple_for(type) != 0)
    reject(fmt::format("a shared expert of {} columns: {}", columns, asked_by(type)));
  return static_cast<std::uint32_t>(columns);
}

void check_gemms_for(const Ranks& ranks, const LayerShape& shape, std::int64_t most_tokens) {
  constexpr double kMostOnCpu = 1e9;
  const double columns = double{1} * shape.intermediate * shape.top_k + shape.shared;
  const double products = 3.0 * shape.hidden * columns * static_cast<double>(most_tokens);
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

LayerOutputs reference_outputs(Ranks::Seat& seat, LayerRank& rank, const LayerWay& way) {
  LayerOutputs outputs;
  for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer) {
    rank.clear();
    seat.barrier();
    rank.device().run(seat, [&] { rank.run_reference(way, layer); });
    outputs.push_back(rank.output());
  }
  return outputs;
}

std::string compare_way(Ranks::Seat& seat, LayerRank& rank, const LayerWay& way, const LayerOutputs& expected) {
  std::string wrong;
  for (std::uint32_t layer = 0; layer < LayerRank::kLayers; ++layer) {
    rank.clear();
    seat.barrier();
    rank.device().run(seat, [&] { rank.run(way, layer); });
    if (rank.output() != expected[layer] && wrong.empty())
      wrong = fmt::format("{} in {} rounds by {}: layer {} differs from one part after the other", method_of(way),
                          rounds_of(way), weft::name(way.path), layer);
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
  const bool in_rounds = part == TimedPart::dispatch_rounds || part == TimedPart::combine_rounds;
  std::uint32_t layer = 0;
  DispatchHandle handle;
  std::vector<DispatchHandle> handles;
  if (rows != SomeRows::all) rank.choose_rows(way, rows);
  seat.barrier();
  if (combines) rank.device().run(seat, [&] { handle = rank.dispatch(way, layer, rows); });
  if (part == TimedPart::combine_rounds) rank.device().run(seat, [&] { handles = rank.dispatch_rounds(way, layer); });
  const auto operation = [&](int) {
    if (part == TimedPart::layer) rank.run(way, layer++);
    if (part == TimedPart::exchange) rank.exchange(way, layer++);
    if (part == TimedPart::experts) rank.experts(way, layer++);
    if (part == TimedPart::up) rank.up(layer++);
    if (part == TimedPart::down) rank.down(way, layer++);
    if (part == TimedPart::shared) rank.shared(layer++);
    if (part == TimedPart::sum) rank.sum(layer++);
    if (part == TimedPart::dispatch_rounds) rank.dispatch_rounds(way, layer++);
    if (part == TimedPart::combine_rounds) rank.combine_rounds(way, handles);
    if (dispatches) rank.dispatch(way, layer++, rows);
    if (combines) rank.combine(way, handle);
  };
  seat.barrier();
  auto times = seat.gather(rank.device().time(seat, {.method = methods_of(seat.communicator().device()).front(),
                                                     .samples = samples,
                                                     .operation = operation,
                                                     .poison = [&] { rank.clear(); }}));
  if (dispatches || combines || in_rounds) {
    seat.barrier();
    rank.device().run(seat, [&] { rank.settle(way); });
  }
  return times;
}

}  // namespace weft::cli
