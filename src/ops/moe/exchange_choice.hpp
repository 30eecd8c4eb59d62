// The choices of an exchange that a tuning table makes: slots or a ring, behind RowPath::automatic, and the grids of
// its calls.
#pragma once

#include <string>
#include <vector>

#include "comm/state.hpp"
#include "ops/moe/exchange_grid.hpp"
#include "ops/moe/in_flight.hpp"
#include "tuning/exchange_steps.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

class ExchangeState;

// The choices of rank 0's tables for an exchange: the same on all ranks.
struct ExchangeTuning {
  std::vector<ExchangeStep> steps = {};  // none: there is no table for such an exchange
  std::string reason = {};               // the table's words
};
// The size of a table for an exchange, whose arguments have been checked.
ExchangeSize size_of_exchange(std::uint32_t ranks, const MoeExchangeArgs& args);
// Places of the ring that a table brings, as MoeExchangeArgs::ring_rows: for all tokens, so halves and rounds serve as
// many as by slots. An exchange that has a ring without a table keeps its own.
std::uint32_t ring_rows_of_table(const MoeExchangeArgs& args);
// The choices for an exchange, whose arguments have been checked. Rows that are given as fp8, payloads,
// MoeExchangeArgs::blocks and ::repeatable take no table, since none was measured with them.
ExchangeTuning tuning_of_exchange(const GroupState& group, const MoeExchangeArgs& args);

// The arguments of the buffers: RowPath::automatic is replaced as the steps say, else as with_row_path() does. Slots
// are for the tokens that go by them. An exchange that no ring can serve stays as it is.
MoeExchangeArgs with_tuning(std::uint32_t ranks, const MoeExchangeArgs& args, const std::vector<ExchangeStep>& steps);

// The grid of a call, for dispatch_grid() or combine_grid(). A joined call in one round takes its step's grid, if it
// goes the step's way and the caller gives neither blocks nor threads.
struct ExchangeCall {
  InFlight::Side side;
  const DispatchHandle& handle;
  Phases phases;
  bool rounds;  // more than one
  Launch launch;
};
ExchangeGridArgs grid_args_of(const ExchangeState& exchange, const ExchangeCall& call);

}  // namespace weft::detail
