// Crossings send no more bytes than the formulas of reduce-scatter and all-gather say, at tp 8 and dp 4. A gather that
// sends a row twice has right results: the bytes alone tell.
//
// Whole packs are data, and are counted apart from everything else. Everything else of a call that goes in one go is a
// header for each peer.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/all_reduce.hpp"
#include "sim/schedule.hpp"
#include "sim/setup.hpp"

namespace weft::sim {
namespace {

constexpr unsigned kWireRanks = 8, kWireGroups = 4, kWireGroup = kWireRanks / kWireGroups;
using Rows = std::vector<std::int32_t>;  // of each rank's shard
constexpr std::uint64_t kWireColumns = 16, kWireRowBytes = 2 * kWireColumns;

struct Sent {
  std::uint64_t data, others;  // bytes; stores
  bool operator==(const Sent&) const = default;
};

// By each rank in the ordinary execution of one call.
std::vector<Sent> sent_in(CallSetup call) {
  Setup setup{.name = "wire-bytes", .ranks = kWireRanks, .calls = {std::move(call)}, .pipeline_slots = 2};
  AllReduceProgram program(setup);
  Scheduler ordinary = Scheduler::replay({});
  ordinary.begin();
  const Failure failure = program.run(ordinary);
  EXPECT_FALSE(failure) << failure.what;
  const Memory& memory = program.machine().memory();
  std::vector<Sent> sent;
  for (unsigned rank = 0; rank < kWireRanks; ++rank) {
    const std::uint64_t packs = memory.sent_packs(rank);
    sent.push_back({packs * sizeof(Pack), memory.sent(rank) - packs});
  }
  return sent;
}

CallSetup crossing(Moving moving, const Rows& rows) {
  return {.count = kWireColumns, .moving = moving, .counts = rows, .padding = Padding::none, .group_ranks = kWireGroup};
}

std::uint64_t all_rows(const Rows& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::uint64_t{0});
}
std::uint64_t group_rows(const Rows& rows, unsigned rank) {
  std::uint64_t sum = 0;
  for (unsigned member = 0; member < kWireGroup; ++member)
    sum += static_cast<std::uint64_t>(rows[rank / kWireGroup * kWireGroup + member]);
  return sum;
}

// Rows that a rank sends. In a reduce-scatter it sends its part of every other rank's shard to that rank. In an
// all-gather it sends its own shard to every other rank. One of the two is inside of its group.
struct HopRows {
  std::uint64_t parts, sums;
};
HopRows in_two_hops(bool gathers, const Rows& rows, unsigned rank) {
  const auto own = static_cast<std::uint64_t>(rows[rank]);
  if (gathers) return {.parts = group_rows(rows, rank) - own, .sums = (kWireRanks - 1) * own};
  return {.parts = all_rows(rows) - own, .sums = (kWireGroup - 1) * own};
}
// In one hop it sends its part of all that a rank needs to that rank: a gather's rank needs the sender's whole group,
// and a scatter's rank needs its own.
std::uint64_t in_one_hop(bool gathers, const Rows& rows, unsigned rank) {
  std::uint64_t sum = 0;
  for (unsigned peer = 0; peer < kWireRanks; ++peer) {
    if (peer != rank) sum += group_rows(rows, gathers ? rank : peer);
  }
  return sum;
}

// As many rows everywhere; groups whose rows do not divide; one busy group; none at all.
const std::vector<Rows> kWireLoads{
    {2, 2, 2, 2, 2, 2, 2, 2}, {3, 2, 1, 0, 0, 0, 2, 2}, {0, 0, 0, 0, 3, 3, 0, 0}, {0, 0, 0, 0, 0, 0, 0, 0}};
const std::string kWireLoadNames[] = {"even rows", "uneven rows", "one busy group", "no rows"};

TEST(WireBytes, OfCrossingsAreTheFormulas) {
  for (const bool gathers : {true, false}) {
    for (std::size_t load = 0; load < kWireLoads.size(); ++load) {
      const Rows& rows = kWireLoads[load];
      for (const bool one_hop : {true, false}) {
        CallSetup call = crossing(gathers ? Moving::gather_sums : Moving::scatter_sums, rows);
        call.one_hop = one_hop;
        const std::vector<Sent> sent = sent_in(std::move(call));
        for (unsigned rank = 0; rank < kWireRanks; ++rank) {
          const auto [parts, sums] = in_two_hops(gathers, rows, rank);
          const std::uint64_t wanted = one_hop ? in_one_hop(gathers, rows, rank) : parts + sums;
          EXPECT_EQ(sent[rank].data, wanted * kWireRowBytes)
              << (gathers ? "gather" : "scatter") << " of " << kWireLoadNames[load] << " in "
              << (one_hop ? "one hop" : "two") << ", rank " << rank;
          EXPECT_EQ(sent[rank].others, kWireRanks - 1) << kWireLoadNames[load] << ", rank " << rank;
        }
      }
    }
  }
}

// Chunks carry the same data. Their signals are small, and follow from the number of chunks.
TEST(WireBytes, OfChunksAreTheSame) {
  for (const Moving moving : {Moving::gather_sums, Moving::scatter_sums}) {
    for (const Rows& rows : kWireLoads) {
      CallSetup call = crossing(moving, rows);
      call.flows = true;
      const std::vector<Sent> sent = sent_in(std::move(call));
      for (unsigned rank = 0; rank < kWireRanks; ++rank) {
        const auto [parts, sums] = in_two_hops(moving == Moving::gather_sums, rows, rank);
        EXPECT_EQ(sent[rank].data, (parts + sums) * kWireRowBytes) << "rank " << rank;
      }
    }
  }
}

// (A − 1) / (A · D) + (N − 1) / N of all rows, for N ranks in D groups of A: one times all rows, in either direction.
TEST(WireBytes, OfEvenRowsAreThoseOfTheRing) {
  const Rows& rows = kWireLoads[0];
  const std::uint64_t ring =
      all_rows(rows) * (kWireGroup - 1) / kWireRanks + all_rows(rows) * (kWireRanks - 1) / kWireRanks;
  EXPECT_EQ(ring, all_rows(rows));
  for (const Moving moving : {Moving::gather_sums, Moving::scatter_sums}) {
    for (const Sent& sent : sent_in(crossing(moving, rows))) EXPECT_EQ(sent.data, ring * kWireRowBytes);
  }
}

// Partial sums cross as they are, and normed rows as they were cast: a byte for each number, and a scale of four bytes
// for each 128 columns.
TEST(WireBytes, OfCastRowsAreThoseOfTheCast) {
  constexpr std::uint64_t columns = 512, sum_bytes = 2 * columns, cast_bytes = columns + 4 * columns / 128;
  const Rows rows{1, 1, 0, 0, 1, 0, 0, 0};
  for (const Moving moving : {Moving::gather_sums_norm, Moving::scatter_sums_norm}) {
    for (const bool cast : {false, true}) {
      CallSetup call = crossing(moving, rows);
      call.count = columns;
      call.norm = cast ? NormForm{.scaling = detail::RowScaling::per_group, .output = false}
                       : NormForm{.scaling = detail::RowScaling::none};
      const std::vector<Sent> sent = sent_in(std::move(call));
      for (unsigned rank = 0; rank < kWireRanks; ++rank) {
        const auto [parts, sums] = in_two_hops(moving == Moving::gather_sums_norm, rows, rank);
        EXPECT_EQ(sent[rank].data, parts * sum_bytes + sums * (cast ? cast_bytes : sum_bytes)) << "rank " << rank;
        EXPECT_EQ(sent[rank].others, kWireRanks - 1) << "rank " << rank;
      }
    }
  }
}

// Columns of a group's rows go to its ranks alone: a quarter of what a gather of all columns sends. In chunks, since
// few rows travel in lines, which carry flags between the data.
TEST(WireBytes, OfColumnsToGroupsGoNowhereElse) {
  const Rows tokens{1, 2, 0, 1};
  CallSetup call{.count = kWireColumns,
                 .moving = Moving::all_to_all_columns,
                 .flows = true,
                 .counts = tokens,
                 .padding = Padding::none,
                 .group_ranks = kWireGroup};
  const std::vector<Sent> sent = sent_in(std::move(call));
  for (unsigned rank = 0; rank < kWireRanks; ++rank) {
    std::uint64_t wanted = 0;
    for (unsigned peer = 0; peer < kWireRanks; ++peer) {
      if (peer != rank) wanted += static_cast<std::uint64_t>(tokens[peer / kWireGroup]);
    }
    EXPECT_EQ(sent[rank].data, wanted * kWireRowBytes) << "rank " << rank;
  }
}

}  // namespace
}  // namespace weft::sim
