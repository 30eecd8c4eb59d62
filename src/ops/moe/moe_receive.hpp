// The second half of dispatch: receives rows, and puts them at the places of records and counts
// (ops/moe/moe_places.hpp).
#pragma once

#include <cstdint>

#include "ops/moe/moe_places.hpp"
#include "ops/moe/moe_rows.hpp"

namespace weft::detail {

// How many tokens each rank has, as far as the numbers have come; dealt to the lanes of a warp.
template <Team T>
struct SenderTokens {
  static constexpr std::uint32_t kUnknown = kNone;  // more than any number
  LaneArray<T, kMaxRanks> count;

  WEFT_FN SenderTokens() {
    WEFT_UNROLL
    for (std::uint32_t& known : count.own) known = kUnknown;
  }

  struct Words {
    std::uint64_t own[LaneArray<T, kMaxRanks>::kOwn];
  };
  // Asks for the unknown numbers; nothing here waits for them.
  WEFT_FN Words load(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane) {
    Words words;
    count.each(lane, s.size(), [&](std::uint32_t rank, std::uint32_t known, std::uint32_t j) {
      words.own[j] = FlaggedWord::encode(known, s.epoch);
      if (known == kUnknown) words.own[j] = team.load(DispatchArea::of(s, exchange, s.rank(), rank).tokens());
    });
    return words;
  }
  WEFT_FN void note(const Session& s, std::uint32_t lane, const Words& words) {
    count.each(lane, s.size(), [&](std::uint32_t, std::uint32_t& known, std::uint32_t j) {
      if (FlaggedWord::arrived(words.own[j], s.epoch)) known = FlaggedWord::decode(words.own[j]);
    });
  }
  // An unknown rank of this lane, or kNoPeer.
  WEFT_FN std::uint32_t late(const Session& s, std::uint32_t lane) {
    std::uint32_t who = kNoPeer;
    count.each(lane, s.size(),
               [&](std::uint32_t rank, std::uint32_t known, std::uint32_t) { who = known == kUnknown ? rank : who; });
    return who;
  }
  // By all lanes, when all numbers are known: whether a rank has more tokens.
  WEFT_FN bool any_above(T& team, const Session& s, std::uint32_t lane, std::uint32_t tokens) {
    bool above = false;
    count.each(lane, s.size(), [&](std::uint32_t, std::uint32_t known, std::uint32_t) { above |= known > tokens; });
    return !team.all_lanes(!above);
  }
  // The most of a rank. By all lanes, when all numbers are known.
  WEFT_FN std::uint32_t most(T& team, const Session& s) {
    std::uint32_t most = 0;
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::uint32_t known = count.get(team, rank);
      if (known > most) most = known;
    }
    return most;
  }
  // By all lanes.
  WEFT_FN bool know_all(T& team, const Session& s, const ExchangeView& exchange, std::uint32_t lane) {
    const auto all = [&] {
      note(s, lane, load(team, s, exchange, lane));
      return team.all_lanes(late(s, lane) == kNoPeer);
    };
    return wait(team, s, {.phase = 1, .warp = true}, all, [&] { return late(s, lane); });
  }
};

// A row's words are asked for at once, not one after the other: its records, its payload and its sender's number of
// tokens. Then come the counts for its places, with another look at missing words. If all has come when a warp begins,
// two round trips to memory suffice.
template <class Row, bool in_rounds>
struct MoeReceive {
  // Warps of a row: `sharers` receive it. If there are warps enough, one more notes the row for combine and the caller.
  struct Plan {
    std::uint32_t sharers, parts;
  };
  struct Unit {
    std::uint32_t token, sender, part;
  };
  template <Team T>
  static WEFT_FN Plan plan(const Call& call, const DispatchWork& work, const WarpShare& share) {
    const std::uint32_t rows = work.tokens * call.size;
    const std::uint32_t sharers = row_sharers<T>(Row::template items<T>(work.exchange.shape), rows, share.step);
    return {.sharers = sharers, .parts = rows * (sharers + 1) <= share.step ? sharers + 1 : sharers};
  }
  // `i`: among all units; the rows of a token are neighbours.
  static WEFT_FN Unit unit(const Call& call, const Plan& plan, std::uint32_t i) {
    const std::uint32_t row = i / plan.parts;
    const std::uint32_t turn = call.rank + row % call.size;
    return {row / call.size, turn < call.size ? turn : turn - call.size, i % plan.parts};
  }

  // Looks at up to kItemsAtOnce items of a lane.
  template <Team T>
  struct Items {
    static constexpr std::uint32_t kAtOnce = T::kLanes == 1 ? 1 : Row::kItemsAtOnce;
    typename Row::template Moving<T> moving[kAtOnce];
    bool arrived;
    Pack* row;
    std::uint32_t lane, first, step, count;  // the first lane's first item, distance, items of the row

    WEFT_FN void begin(std::uint32_t item) {
      first = item;
      arrived = false;
    }
    // Calls `handle(item, moving)` for each item that exists.
    template <class Handle>
    WEFT_FN void each(Handle handle) {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        if (first + j * step >= count) break;
        if (first + j * step + lane < count) handle(first + j * step + lane, moving[j]);
      }
    }
    // Asks for missing items; nothing here waits for them.
    WEFT_FN void load(T& team, const ExchangeShape& shape) {
      if (!arrived) each([&](std::uint32_t item, auto& got) { Row::load(team, shape, row, item, got); });
    }
    WEFT_FN void check(const Session& s, const ExchangeShape& shape) {
      if (arrived) return;
      arrived = true;
      each([&](std::uint32_t item, auto& got) { arrived &= Row::template arrived<T>(s, shape, item, got); });
    }
    WEFT_FN void look(T& team, const Session& s, const ExchangeShape& shape) {
      load(team, shape);
      check(s, shape);
    }
    // Stores the items that have come, and puts slots back to rest.
    WEFT_FN void take(T& team, const DispatchWork& work, const Entries<T>& entries) {
      const ExchangeShape& shape = work.exchange.shape;
      each([&](std::uint32_t, auto& got) { Row::template decode<T>(got); });
      for (std::uint32_t left = entries.kept; left != 0;) {
        std::uint32_t to[Row::kRowsAtOnce];  // kNone: no more
        WEFT_UNROLL
        for (std::uint32_t i = 0; i < Row::kRowsAtOnce; ++i) {
          const std::uint32_t row = entries.row.get(team, left != 0 ? lowest_bit(left) : 0);
          to[i] = left != 0 ? row : kNone;
          left &= left - 1;
        }
        each([&](std::uint32_t item, const auto& got) { Row::template put<T>(work, to, item, got); });
      }
      each([&](std::uint32_t item, auto&) { Row::rearm(team, shape, row, item); });
    }
  };

  template <Team T>
  static WEFT_FN bool receive_row(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane,
                                  const Unit& unit, const Plan& plan, SenderTokens<T>& tokens) {
    const ExchangeView& exchange = work.exchange;
    const ExchangeShape& shape = exchange.shape;
    const auto late = [&] { return unit.sender; };
    Items<T> items;
    items.row = DispatchArea::of(s, exchange, s.rank(), unit.sender).row(unit.token);
    items.lane = lane;
    items.step = plan.sharers * T::kLanes;
    items.count = unit.part < plan.sharers ? Row::template items<T>(shape) : 0;
    items.begin(unit.part * T::kLanes);
    Records<T> records;
    Entries<T> entries{};
    bool exists = true;
    const auto routed = [&] {
      records.load(team, s, exchange, lane, unit.sender, unit.token);
      items.load(team, shape);
      const auto words = tokens.load(team, s, exchange, lane);
      const bool all = team.all_lanes(records.read(s, exchange, lane, entries));
      items.check(s, shape);
      tokens.note(s, lane, words);
      entries.here = team.or_of(all ? entries.here : 0);
      if (entries.here != 0) return true;
      // No entry is for this rank, or the records are those of a token that the call does not have, which are sent in
      // turn. The number of tokens decides.
      const std::uint32_t count = tokens.count.get(team, unit.sender);
      exists = count == SenderTokens<T>::kUnknown || unit.token < count;
      return !exists || (all && count != SenderTokens<T>::kUnknown);
    };
    if (!wait(team, s, {.phase = 1, .warp = true}, routed, late)) return false;
    if (!exists) return true;
    const bool takes = entries.here != 0 && comes_now<in_rounds>(team, work, lane, entries);
    const bool notes = unit.part + 1 == plan.parts && (!in_rounds || work.rounds.current == 0);
    if (in_rounds && !takes && !notes) return true;
    const auto beside = [&] { items.look(team, s, shape); };
    if (entries.here != 0 && !place(team, s, exchange, lane, unit.sender, unit.token, entries, beside)) return false;
    if (takes) {
      for (std::uint32_t first = items.first; first < items.count; first += Items<T>::kAtOnce * items.step) {
        if (first != items.first) items.begin(first);
        const auto arrived = [&] {
          items.look(team, s, shape);
          return team.all_lanes(items.arrived);
        };
        if (!wait(team, s, {.phase = 1, .warp = true}, arrived, late)) return false;
        items.take(team, work, entries);
      }
    }
    if (notes) note_entries(team, work, lane, unit.sender, unit.token, entries);
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const DispatchWork& work, const WarpShare& share,
                              const Unit& first, std::uint32_t second_token, const Plan& plan) {
    const ExchangeShape& shape = work.exchange.shape;
    SenderTokens<T> tokens;
    Unit unit = first;
    const std::uint32_t most = shape.tokens * s.size() * plan.parts;
    for (std::uint32_t i = share.first; i < most;) {
      if (unit.token < tokens.count.get(team, unit.sender) &&
          !receive_row(team, s, work, share.lane, unit, plan, tokens)) {
        return false;
      }
      const bool was_first = i == share.first;
      i += share.step;
      if (i >= most) return true;
      if (was_first && !tokens.know_all(team, s, work.exchange, share.lane)) return false;
      if (was_first && !tokens.any_above(team, s, share.lane, second_token)) return true;
      unit = MoeReceive::unit(*s.call, plan, i);
      if (!was_first && !tokens.any_above(team, s, share.lane, unit.token)) return true;
    }
    return true;
  }
};

// Tells combine and the caller how many tokens each rank has. By the first warp of the control block. False when the
// call has failed.
template <Team T>
WEFT_FN bool tell_tokens(T& team, const Session& s, const DispatchWork& work) {
  SenderTokens<T> tokens;
  if (!tokens.know_all(team, s, work.exchange, team.thread_rank())) return false;
  RoutingHeader* const header = work.exchange.tables.header;
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
    const std::uint32_t count = tokens.count.get(team, rank);
    if (count > most) most = count;
    if (team.thread_rank() != 0) continue;
    header->tokens[rank] = count;
    tell_host(team, s, work, work.exchange.shape.local + rank, count);
    if (work.source_tokens != nullptr) work.source_tokens[rank] = static_cast<std::int32_t>(count);
  }
  if (team.thread_rank() == 0) header->most_tokens = most;
  return true;
}

}  // namespace weft::detail
