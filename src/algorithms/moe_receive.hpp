// The second half of dispatch: rows are received, and put where records and counts say (algorithms/moe_places.hpp).
#pragma once

#include <cstdint>

#include "algorithms/moe_places.hpp"
#include "algorithms/moe_rows.hpp"

namespace weft::detail {

// How many tokens each rank has, as far as that has come; dealt to the lanes of a warp.
template <Team T>
struct SenderTokens {
  static constexpr std::uint32_t kUnknown = kNone;
  Dealt<T, kMaxRanks> count;

  // One look; true when this lane knows all of its own.
  WEFT_FN bool look(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane) {
    bool all = true;
    count.each(lane, s.size(), [&](std::uint32_t rank, std::uint32_t& known) {
      if (known != kUnknown) return;
      const std::uint64_t word = team.load(DispatchArea::of(s, exchange, s.rank(), rank).tokens());
      if (FlaggedWord::arrived(word, s.epoch)) known = FlaggedWord::decode(word);
      all &= known != kUnknown;
    });
    return all;
  }
  // By all lanes.
  WEFT_FN bool know_all(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane) {
    return wait(
        team, s, {.phase = 1, .warp = true}, [&] { return team.all_lanes(look(team, s, exchange, lane)); },
        [&] { return late(lane, s.size()); });
  }
  // Of those that are this lane's.
  WEFT_FN std::uint32_t late(std::uint32_t lane, std::uint32_t ranks) {
    std::uint32_t who = kNoPeer;
    count.each(lane, ranks, [&](std::uint32_t rank, std::uint32_t& known) { who = known == kUnknown ? rank : who; });
    return who;
  }
};

// Everything that a row needs is asked for at once and not one thing after the other: how many tokens its sender has,
// the token's records, and what the row itself brings; then the counts that its places depend on, with another look at
// what was not there. What has come when a warp begins costs two round trips to memory.
template <class Row>
struct MoeReceive {
  struct Unit {
    std::uint32_t token, sender, part;
  };
  // `i`: among all units, the rows of a token one behind the other.
  static WEFT_FN Unit unit(const Call& call, std::uint32_t sharers, std::uint32_t i) {
    const std::uint32_t row = i / sharers;
    const std::uint32_t turn = call.rank + row % call.size;
    return {row / call.size, turn < call.size ? turn : turn - call.size, i % sharers};
  }

  // Looks at up to kItemsAtOnce items of a lane.
  template <Team T>
  struct Items {
    static constexpr std::uint32_t kAtOnce = T::kLanes == 1 ? 1 : Row::kItemsAtOnce;
    typename Row::template Moving<T> moving[kAtOnce];
    bool arrived;
    Pack* row;
    std::uint32_t first, step, count;  // first item, distance, items of the row

    WEFT_FN void begin(std::uint32_t item) {
      first = item;
      arrived = false;
    }
    // Calls `handle(item, moving)` for those that there are.
    template <class Handle>
    WEFT_FN void each(Handle handle) {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j * step < count) handle(first + j * step, moving[j]);
      }
    }
    WEFT_FN void look(T& team, const Session& s, const ExchangeShape& shape) {
      if (arrived) return;
      arrived = true;
      each([&](std::uint32_t item, auto& got) { arrived &= Row::look(team, s, shape, row, item, got); });
    }
    // Stores what has come, and puts slots back to rest.
    WEFT_FN void take(T& team, const DispatchWork& work, const Entries<T>& entries) {
      const ExchangeShape& shape = work.exchange.shape;
      each([&](std::uint32_t, auto& got) { Row::template decode<T>(got); });
      for (std::uint32_t k = 0; k < shape.top_k; ++k) {
        if ((entries.kept >> k & 1u) == 0) continue;
        const std::uint32_t to = entries.row.get(team, k);
        each([&](std::uint32_t item, const auto& got) { Row::template put<T>(work, to, item, got); });
      }
      each([&](std::uint32_t item, auto&) { Row::rearm(team, shape, row, item); });
    }
  };

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  const Unit& unit, std::uint32_t sharers, SenderTokens<T>& tokens) {
    const ExchangeView& exchange = work.exchange;
    const ExchangeShape& shape = exchange.shape;
    const auto late = [&] { return unit.sender; };
    Items<T> items;
    items.row = DispatchArea::of(s, exchange, s.rank(), unit.sender).row(unit.token);
    items.step = sharers * T::kLanes;
    items.count = Row::template items<T>(shape);
    items.begin(unit.part * T::kLanes + lane);
    Entries<T> entries{};
    bool exists = true;
    const auto routed = [&] {
      tokens.look(team, s, exchange, lane);
      const bool all = read_records(team, s, exchange, lane, unit.sender, unit.token, entries);
      items.look(team, s, shape);
      const std::uint32_t count = tokens.count.get(team, unit.sender);
      exists = count == SenderTokens<T>::kUnknown || unit.token < count;
      if (!team.all_lanes(!exists || all)) return false;
      // Records may be those of a token that the call does not have, which are sent in turn: then the number decides.
      return count != SenderTokens<T>::kUnknown || team.or_of(entries.here) != 0;
    };
    if (!wait(team, s, {.phase = 1, .warp = true}, routed, late)) return false;
    if (!exists) return true;
    entries.here = team.or_of(entries.here);
    const auto beside = [&] { items.look(team, s, shape); };
    if (entries.here != 0 && !place(team, s, exchange, lane, unit.sender, unit.token, entries, beside)) return false;
    if (unit.part == 0) note_entries(team, work, lane, unit.sender, unit.token, entries);
    if (entries.here == 0) return true;
    for (std::uint32_t first = unit.part * T::kLanes; first < items.count; first += Items<T>::kAtOnce * items.step) {
      if (first != unit.part * T::kLanes) items.begin(first + lane);
      const auto arrived = [&] {
        items.look(team, s, shape);
        return team.all_lanes(items.arrived);
      };
      if (!wait(team, s, {.phase = 1, .warp = true}, arrived, late)) return false;
      items.take(team, work, entries);
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const DispatchWork& work, const WarpShare& share,
                              const Unit& first, std::uint32_t sharers) {
    const ExchangeShape& shape = work.exchange.shape;
    SenderTokens<T> tokens;
    WEFT_UNROLL
    for (std::uint32_t& count : tokens.count.own) count = SenderTokens<T>::kUnknown;
    Unit unit = first;
    std::uint32_t all = shape.tokens * s.size() * sharers;
    for (std::uint32_t i = share.first; i < all; unit = MoeReceive::unit(*s.call, sharers, i)) {
      // kUnknown is more than any number.
      if (unit.token < tokens.count.get(team, unit.sender) &&
          !receive_row(team, s, work, share.lane, unit, sharers, tokens)) {
        return false;
      }
      if (i == share.first) {
        if (!tokens.know_all(team, s, work.exchange, share.lane)) return false;
        std::uint32_t most = 0;
        for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
          const std::uint32_t count = tokens.count.get(team, rank);
          if (count > most) most = count;
          if (i == 0 && share.lane == 0) note_tokens(work, rank, count);
        }
        if (i == 0 && share.lane == 0) work.exchange.tables.header->most_tokens = most;
        all = most * s.size() * sharers;
      }
      i += share.step;
    }
    return true;
  }
  static WEFT_FN void note_tokens(const DispatchWork& work, std::uint32_t rank, std::uint32_t count) {
    work.exchange.tables.header->tokens[rank] = count;
    if (work.source_tokens != nullptr) work.source_tokens[rank] = static_cast<std::int32_t>(count);
  }
};

}  // namespace weft::detail
