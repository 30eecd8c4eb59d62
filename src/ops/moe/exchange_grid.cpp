#include "ops/moe/exchange_grid.hpp"

#include <algorithm>

#include "comm/pairs.hpp"
#include "ops/moves/move_plan.hpp"
#include "team/team.hpp"

namespace weft::detail {
namespace {

// A grid of `warps` warps of data. Blocks stay small while there are processors, and blocks of the caller's, for all of
// them: each block then has a larger share of its processor's loads in flight (docs/notes). One block is for control.
ExchangeGrid grid_of(const ExchangeGridArgs& args, std::uint64_t warps) {
  const int all = args.launch.blocks != 0 ? std::min(args.launch.blocks, args.most_blocks) : args.most_blocks;
  const auto most = static_cast<std::uint64_t>(all - 1);
  const auto blocks_of = [&](int threads) {
    const std::uint64_t in_block = static_cast<std::uint64_t>(threads) / 32;
    return (warps + in_block - 1) / in_block;
  };
  ExchangeGrid grid{args.launch.blocks, args.launch.threads, 0, false};
  for (int threads = 128; grid.threads == 0; threads *= 2) {
    if (threads >= kMoveThreads || blocks_of(threads) <= most) grid.threads = threads;
  }
  if (grid.blocks == 0) {
    const auto by_size = static_cast<int>(std::clamp<std::uint64_t>(blocks_of(grid.threads), 1, most)) + 1;
    grid.blocks = whole_pairs(by_size, args.launch);
  }
  return grid;
}

// The most tokens that a rank may have.
std::uint64_t tokens_of(const ExchangeGridArgs& args) {
  return args.most_tokens != 0 ? args.most_tokens : args.shape.tokens;
}
// Rows that this rank gets, or returns.
std::uint64_t rows_of_all(const ExchangeGridArgs& args) {
  return tokens_of(args) * args.ranks;
}

// Least numbers of rows for which it pays, as measured (docs/notes/0020-dispatch-and-combine-some-warps-only-send.md).
constexpr std::uint64_t kRowsForDispatchSenders = 4096, kRowsForCombineSenders = 1024, kRowsForPairs = 512;

// Entries of a rank from which on it pays that blocks count them in tallies, as measured
// (docs/notes/0053-records-by-tallies.md). If one launch sends and receives, own rows then stay out of the slots. Of
// two ranks these are half of all, so it pays earlier (docs/notes/0054-own-rows-stay-out-of-slots.md).
constexpr std::uint64_t kEntriesForTallies = 3072, kEntriesForTalliesOfTwo = 1536;

// Whether some warps send while the others receive. Between two ranks half of the rows cross no link, so senders would
// soon be idle.
bool has_senders(const ExchangeGridArgs& args, std::uint64_t least_rows) {
  return args.phases.has(0) && args.phases.has(1) && args.ranks > 2 && rows_of_all(args) >= least_rows;
}

// The most blocks of a ring with which large blocks are faster, as measured (docs/notes/0042-copies-in-bulk.md).
constexpr int kFewBlocks = 32;

// The rows that warps of a ring send and receive, and what one of each costs.
struct RingWork {
  std::uint64_t sent, send_cost, received, receive_cost;
};
// A sender casts a row and copies it to its rank's own experts and to as many ranks as the token has experts. With two
// ranks it takes 2.5 times as long as a receiver (docs/notes/0043-own-rows-stay-out-of-the-ring.md); more are
// calculated. A receiver looks at signals of all others, and of a token without a row at nothing else.
RingWork dispatch_work(const ExchangeGridArgs& args) {
  constexpr std::uint64_t kCast = 16, kCopy = 4, kRow = 8, kLook = 1;
  const std::uint64_t others = args.ranks - 1, reached = std::min<std::uint64_t>(others, args.shape.top_k);
  return {.sent = args.tokens,
          .send_cost = (kCast + kCopy * reached) * others,
          .received = tokens_of(args) * others,
          .receive_cost = kRow * reached + kLook * (others - reached)};  // of `others` rows together
}
// In rows that are read or written, if each rank has an equal part of a token's entries.
RingWork combine_work(const ExchangeGridArgs& args) {
  const std::uint64_t entries = has_joint_rows(args.shape.layout) ? 1 : std::max(1u, args.shape.top_k / args.ranks);
  return {.sent = tokens_of(args) * (args.ranks - 1),
          .send_cost = entries + 1,
          .received = args.tokens,
          .receive_cost = entries + args.ranks};
}

// The number of `groups` warp groups that send, while the others receive: so that the slower ones end soonest. If warps
// have few rows, the number of their rounds counts. So a few rounds of sending are tried, beside an equal division.
std::uint32_t ring_senders(const RingWork& work, std::uint32_t groups, std::uint32_t warps) {
  const auto rounds = [&](std::uint64_t rows, std::uint64_t of) { return (rows + of * warps - 1) / (of * warps); };
  const auto cost = [&](std::uint64_t senders) {
    return std::max(rounds(work.sent, senders) * work.send_cost,
                    rounds(work.received, groups - senders) * work.receive_cost);
  };
  if (work.sent == 0) return 1;
  const std::uint64_t send = work.sent * work.send_cost, receive = work.received * work.receive_cost;
  std::uint64_t best = std::clamp<std::uint64_t>(groups * send / (send + receive), 1, groups - 1);
  constexpr std::uint64_t kRounds = 4;
  for (std::uint64_t count = 1; count <= kRounds; ++count) {
    const std::uint64_t senders = rounds(work.sent, count);
    if (senders < groups && cost(senders) <= cost(best)) best = senders;
  }
  return static_cast<std::uint32_t>(best);
}

// The grid of a ring: some warp groups only send, and the others only receive. Each warp has one row under way.
// `most_threads`: of a block.
ExchangeGrid ring_grid(const ExchangeGridArgs& args, int most_threads, const RingWork& work) {
  ExchangeGrid grid{args.launch.blocks, args.launch.threads, 0, false};
  if (grid.blocks == 0) {
    constexpr std::uint64_t kWarps = kMoveThreads / 32;
    const std::uint64_t blocks = std::max<std::uint64_t>((rows_of_all(args) * 2 + kWarps - 1) / kWarps, 2);
    const auto most = static_cast<std::uint64_t>(most_ring_blocks(args.most_blocks));
    grid.blocks = whole_pairs(static_cast<int>(std::min(blocks, most)), args.launch);
  }
  if (grid.threads == 0) grid.threads = grid.blocks <= kFewBlocks ? most_threads : kMoveThreads;
  if (args.one_thread) return grid;
  grid.warp_groups = std::max(1u, static_cast<std::uint32_t>(grid.threads) / kWarpGroupThreads);
  const std::uint32_t groups = static_cast<std::uint32_t>(grid.blocks) * grid.warp_groups - 1;  // one is for control
  if (groups < 2 || args.ranks == 1 || !args.phases.has(0) || !args.phases.has(1)) return grid;
  const std::uint32_t warps = std::min(static_cast<std::uint32_t>(grid.threads), kWarpGroupThreads) / 32;
  grid.senders = ring_senders(work, groups, warps);
  return grid;
}

}  // namespace

// One more warp notes each row (ops/moe/moe_receive.hpp). Beside the rows, warps send records and counts; each makes
// four of either (moe_send.hpp).
ExchangeGrid dispatch_grid(const ExchangeGridArgs& args) {
  const ExchangeShape& shape = args.shape;
  if (args.ring) return ring_grid(args, kRingDispatchThreads, dispatch_work(args));
  const std::uint64_t units = shape.cast != RowCast::none ? (shape.columns / 16 + 31) / 32 : shape.segments;
  const std::uint64_t received = rows_of_all(args) * (units + 1);
  const std::uint64_t sent = args.tokens * (units + (shape.top_k + 3) / 4) + (shape.replicas + 3) / 4;
  const std::uint64_t warps = !args.phases.has(1) ? sent : !args.phases.has(0) ? received : std::max(received, sent);
  ExchangeGrid grid = grid_of(args, warps);
  if (has_senders(args, kRowsForDispatchSenders)) grid.senders = static_cast<std::uint32_t>(grid.threads) / 32 / 8;
  const std::uint64_t entries = std::uint64_t{args.tokens} * shape.top_k;
  const bool two = args.ranks == 2 && is_joined(args.phases);
  const std::uint64_t least = two ? kEntriesForTalliesOfTwo : kEntriesForTallies;
  const bool may_count = args.phases.has(0) && !args.rounds && shape.replicas <= kMostTallyWords;
  grid.tallies = may_count && entries >= least;
  // A quarter of the warps fills the link to one peer. The others place own rows meanwhile.
  if (grid.tallies && two) grid.senders = static_cast<std::uint32_t>(grid.threads) / 32 / 4;
  return grid;
}

ExchangeGrid combine_grid(const ExchangeGridArgs& args) {
  if (args.ring) return ring_grid(args, kMoveThreads, combine_work(args));
  ExchangeGrid grid = grid_of(args, rows_of_all(args) * ((args.shape.combine_packs + 31) / 32));
  grid.pairs = rows_of_all(args) >= kRowsForPairs;
  if (has_senders(args, kRowsForCombineSenders)) grid.senders = static_cast<std::uint32_t>(grid.threads) / 32 / 2;
  return grid;
}

}  // namespace weft::detail
