// Compact rows (RowLayout::rank_compact): a token's row comes once for all experts of a rank, and rows follow each
// other in (source rank, token) order. A row's ordinal is the number of its source's earlier tokens that go to the same
// rank. Its place is its ordinal plus the rows of all lower sources. So each rank tells all ranks how many rows it
// sends to each of them, and every rank knows the whole matrix.
#pragma once

#include <cstdint>

#include "ops/moe/moe_places.hpp"
#include "ops/moe/moe_tally.hpp"

namespace weft::detail {

// Adds the rows of the tokens `from` … `until` − 1 to the tally of those that each rank gets. By all threads of a
// block; sync() must follow.
template <Team T>
WEFT_FN void tally_rows(T& team, const Session& s, const DispatchWork& work, std::uint32_t from, std::uint32_t until) {
  constexpr std::uint32_t kIds = 8;  // that a thread loads at once
  const std::uint32_t top_k = work.exchange.shape.top_k;
  const TopK topk = TopK::of(work, s.rank());
  for (std::uint32_t token = from + team.thread_rank(); token < until; token += team.size()) {
    const std::uint32_t end = (token + 1) * top_k;
    RankSet to{};
    for (std::uint32_t first = token * top_k; first < end; first += kIds) {
      TopK::Id id[kIds];
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kIds; ++j) id[j] = topk.id(first + j, end);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kIds; ++j) {
        const std::uint32_t replica = topk.replica(id[j], first + j);
        if (replica == kNone) continue;
        const std::uint32_t rank = home_of(work.exchange, replica).rank;
        if (!to.has(rank)) team.add(team.tally() + rank);
        to.add(rank);
      }
    }
  }
}

// Tells every rank how many rows this one sends to each. By the control block, whose threads clear words of the tally
// that they have sent themselves (send_all_counts).
template <Team T>
WEFT_FN void send_row_counts(T& team, const Session& s, const DispatchWork& work) {
  clear_tally(team, s.size());
  tally_rows(team, s, work, 0, work.tokens);
  team.sync();
  for (std::uint32_t i = team.thread_rank(); i < s.size() * s.size(); i += team.size()) {
    const std::uint32_t to = i / s.size(), of = i % s.size();
    team.store(DispatchArea::of(s, work.exchange, to, s.rank()).row_counts(s.size()) + of,
               FlaggedWord::encode(team.tally()[of], s.epoch));
  }
}

// Adds the ordinals of a token's row to the places of its entries. The tally has the rows of all tokens before
// `first_token`. By a warp; `rank`: of each entry, kNone for one of no expert.
template <Team T>
WEFT_FN void add_row_ordinals(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                              std::uint32_t first_token, std::uint32_t token, LaneArray<T, kMaxTopK>& rank,
                              LaneArray<T, kMaxTopK>& place) {
  const std::uint32_t top_k = work.exchange.shape.top_k;
  const auto add = [&](auto rows_for) {
    rank.each(lane, top_k, [&](std::uint32_t, std::uint32_t of, std::uint32_t j) {
      if (of != kNone) place.own[j] += rows_for(of);
    });
  };
  add([&](std::uint32_t of) { return team.tally()[of]; });
  for (std::uint32_t before = first_token; before < token; ++before) {
    const TopK::Id id = TopK::of(work, s.rank()).id(before * top_k + lane, (before + 1) * top_k);
    const RankSet to = ranks_of<false>(team, s, work, lane, before, id, kNone);
    add([&](std::uint32_t of) { return to.has(of) ? 1u : 0u; });
  }
}

// By a warp: calls `take(source, before)` for the sources 0 … last, each in a lane of its own: how many rows all lower
// ones have for this rank. False when the call has failed.
template <Team T, class Take>
WEFT_FN bool each_source(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane,
                         std::uint32_t last, Take take) {
  std::uint32_t sum = 0;
  for (std::uint32_t first = 0; first <= last; first += T::kLanes) {
    const std::uint32_t source = first + lane;
    std::uint64_t word = FlaggedWord::encode(0, s.epoch);
    const auto arrived = [&] {
      if (source < last) {
        word = team.load(DispatchArea::of(s, exchange, s.rank(), source).row_counts(s.size()) + s.rank());
      }
      return team.all_lanes(FlaggedWord::arrived(word, s.epoch));
    };
    const auto late = [&] { return FlaggedWord::arrived(word, s.epoch) ? kNoPeer : source; };
    if (!wait(team, s, {.phase = 1, .warp = true}, arrived, late)) return false;
    const std::uint32_t count = FlaggedWord::decode(word), through = sum_through(team, lane, count);
    if (source <= last) take(source, sum + through - count);
    sum += team.from_lane(through, T::kLanes - 1);
  }
  return true;
}

// Turns ordinals into the row that all entries of a token share; `begin`: of its source's rows. One entry keeps it.
template <Team T>
WEFT_FN void place_compact(T& team, const ExchangeShape& shape, std::uint32_t lane, std::uint32_t begin,
                           Entries<T>& entries) {
  const std::uint32_t lowest = entries.here & (0 - entries.here);
  std::uint32_t kept = 0;
  entries.row.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& row, std::uint32_t) {
    row += begin;
    if ((lowest >> k & 1u) != 0 && row < shape.capacity) kept = lowest;
  });
  entries.kept = team.or_of(kept);
}

// Tells the caller how many rows each source has for each rank, and the host those for this rank. By the control block.
// False when the call has failed.
template <Team T>
WEFT_FN bool tell_rank_prefix(T& team, const Session& s, const DispatchWork& work) {
  const ExchangeView& exchange = work.exchange;
  const ExchangeShape& shape = exchange.shape;
  const std::uint32_t lane = team.thread_rank() % T::kLanes, ranks = s.size();
  bool good = true;
  for (std::uint32_t first = team.thread_rank() - lane; first < ranks; first += team.size()) {
    const std::uint32_t rank = first + lane;
    const bool own = rank == s.rank();
    std::uint32_t rows = 0;
    const auto at = [&](std::uint32_t source) {
      return DispatchArea::of(s, exchange, s.rank(), source).row_counts(ranks) + rank;
    };
    const auto take = [&](std::uint32_t source, std::uint32_t count) {
      if (rank >= ranks || source >= ranks) return;
      rows += count;
      work.rank_prefix[source * ranks + rank] = static_cast<std::int32_t>(rows);
      if (own) tell_host(team, s, work, shape.local + ranks + source, count);
    };
    if (!each_number(team, s, rank < ranks, ranks, at, take, [] {})) return false;
    if (!own || rows <= shape.capacity || shape.drop) continue;
    report_misfit(team, id_of(s), {.code = Errc::overflow, .peer = s.call->channel->world_rank, .phase = 1},
                  {Misfit::rows_of_all, 0, rows, shape.capacity});
    good = false;  // other lanes may have more to do
  }
  return good;
}

}  // namespace weft::detail
