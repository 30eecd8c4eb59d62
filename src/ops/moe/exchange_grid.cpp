#include "ops/moe/exchange_grid.hpp"

#include <algorithm>

#include "ops/moves/move_plan.hpp"

namespace weft::detail {
namespace {

// A grid of `warps` warps of data. Blocks stay small while there are processors for all of them: each block then has a
// larger share of its processor's loads in flight (docs/notes).
ExchangeGrid grid_of(const ExchangeGridArgs& args, std::uint64_t warps) {
  const auto most = static_cast<std::uint64_t>(args.most_blocks - 1);
  const auto blocks_of = [&](int threads) {
    const std::uint64_t in_block = static_cast<std::uint64_t>(threads) / 32;
    return (warps + in_block - 1) / in_block;
  };
  ExchangeGrid grid{args.launch.blocks, args.launch.threads, 0, false};
  for (int threads = 128; grid.threads == 0; threads *= 2) {
    if (threads >= kMoveThreads || blocks_of(threads) <= most) grid.threads = threads;
  }
  if (grid.blocks == 0) grid.blocks = static_cast<int>(std::clamp<std::uint64_t>(blocks_of(grid.threads), 1, most)) + 1;
  return grid;
}

// Rows that this rank gets, or returns.
std::uint64_t rows_of_all(const ExchangeGridArgs& args) {
  return std::uint64_t{args.tokens != 0 ? args.tokens : args.shape.tokens} * args.ranks;
}

// Least numbers of rows for which it pays, as measured (docs/notes/0020-dispatch-and-combine-some-warps-only-send.md).
constexpr std::uint64_t kRowsForDispatchSenders = 4096, kRowsForCombineSenders = 1024, kRowsForPairs = 512;

// Whether some warps send while the others receive. Between two ranks half of the rows cross no link, so senders would
// soon be idle.
bool has_senders(const ExchangeGridArgs& args, std::uint64_t least_rows) {
  return args.phases.has(0) && args.phases.has(1) && args.ranks > 2 && rows_of_all(args) >= least_rows;
}

// Up to so many blocks, large ones are faster, as measured (docs/notes/0042-copies-in-bulk.md).
constexpr int kFewBlocks = 32;

// The grid of a ring: `send_share` of 16 warp groups only send, and the others only receive. Each warp has one row
// under way. `most_threads`: of a block.
ExchangeGrid ring_grid(const ExchangeGridArgs& args, int most_threads, std::uint32_t send_share) {
  ExchangeGrid grid{args.launch.blocks, args.launch.threads, 0, false};
  if (grid.blocks == 0) {
    constexpr std::uint64_t kWarps = kMoveThreads / 32;
    const std::uint64_t blocks = std::max<std::uint64_t>((rows_of_all(args) * 2 + kWarps - 1) / kWarps, 2);
    grid.blocks = static_cast<int>(std::min(blocks, most_ring_blocks(args.most_blocks)));
  }
  if (grid.threads == 0) grid.threads = grid.blocks <= kFewBlocks ? most_threads : kMoveThreads;
  if (args.one_thread) return grid;
  grid.warp_groups = std::max(1u, static_cast<std::uint32_t>(grid.threads) / kWarpGroupThreads);
  const std::uint32_t groups = static_cast<std::uint32_t>(grid.blocks) * grid.warp_groups - 1;  // one is for control
  if (groups < 2 || !args.phases.has(0) || !args.phases.has(1)) return grid;
  grid.senders = std::clamp(groups * send_share / 16, 1u, groups - 1);
  return grid;
}

}  // namespace

// One more warp notes each row (ops/moe/moe_receive.hpp). Beside the rows, warps send records and counts; each makes
// four of either (moe_send.hpp).
ExchangeGrid dispatch_grid(const ExchangeGridArgs& args) {
  const ExchangeShape& shape = args.shape;
  if (shape.ring_rows != 0) return ring_grid(args, kRingDispatchThreads, 8);
  const std::uint64_t units = shape.cast != RowCast::none ? (shape.columns / 16 + 31) / 32 : shape.segments;
  const std::uint64_t received = rows_of_all(args) * (units + 1);
  const std::uint64_t sent = args.tokens * (units + (shape.top_k + 3) / 4) + (shape.replicas + 3) / 4;
  const std::uint64_t warps = !args.phases.has(1) ? sent : !args.phases.has(0) ? received : std::max(received, sent);
  ExchangeGrid grid = grid_of(args, warps);
  if (has_senders(args, kRowsForDispatchSenders)) grid.senders = static_cast<std::uint32_t>(grid.threads) / 32 / 8;
  return grid;
}

ExchangeGrid combine_grid(const ExchangeGridArgs& args) {
  if (args.shape.ring_rows != 0)
    return ring_grid(args, kMoveThreads, args.shape.layout == RowLayout::rank_major ? 10 : 12);
  ExchangeGrid grid = grid_of(args, rows_of_all(args) * ((args.shape.combine_packs + 31) / 32));
  grid.pairs = rows_of_all(args) >= kRowsForPairs;
  if (has_senders(args, kRowsForCombineSenders)) grid.senders = static_cast<std::uint32_t>(grid.threads) / 32 / 2;
  return grid;
}

}  // namespace weft::detail
