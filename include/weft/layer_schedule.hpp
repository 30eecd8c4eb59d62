// The schedules of a layer of experts (weft/moe_layer.hpp).
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// The order of a layer's parts. All of them give the same bits, if the GEMMs do.
enum class LayerSchedule : std::uint8_t {
  plain,           // one after the other
  rounds,          // dispatch, GEMMs and combine of different rounds run at once
  combine_rounds,  // only combine runs beside the down GEMM, round by round, as in SGLang's single-batch overlap
  // As the tuning table for such a layer says (Config::tuning_file, `weft tune`): by rank 0's GPU, the number of ranks,
  // hidden and intermediate columns, the experts of the rank that has most, top_k, and most_tokens. A table may serve
  // one way of rows alone.
  // MoeExchangeArgs::tokens stands for most_tokens where it is not given. The table gives schedule, rounds and those
  // numbers of processors that the call leaves at 0, and then all numbers hold as with MoeLayerCall::alone_by_size.
  // Plain if there is no such table, or if the exchange cannot divide the call.
  automatic
};

constexpr std::string_view name(LayerSchedule schedule) {
  constexpr std::string_view names[] = {"plain", "rounds", "combine-rounds", "automatic"};
  return names[static_cast<int>(schedule)];
}

}  // namespace weft
