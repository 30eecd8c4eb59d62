// The second half of dispatch: receives rows, and puts them at the places of records and counts
// (ops/moe/moe_places.hpp).
#pragma once

#include <cstdint>

#include "ops/moe/moe_places.hpp"
#include "ops/moe/moe_rows.hpp"
#include "ops/moe/moe_tokens.hpp"

namespace weft::detail {

// Two round trips to memory suffice if all has come. First a warp asks for a row's records, its payload and its
// sender's number of tokens; then for counts, and again for missing words. `tallies`: many tokens. Own rows that stay
// out of the slots come first, and are placed while others travel.
template <class Row, bool in_rounds, bool tallies>
struct MoeReceive {
  // Warps of a row: `sharers` receive it. If there are warps enough, one more notes the row for combine and the caller.
  struct Plan {
    std::uint32_t sharers, parts;
    std::uint32_t own;  // units of rows that stay out of the slots; they come first
  };
  struct Unit {
    std::uint32_t token, sender, part;
  };
  template <Team T>
  static WEFT_FN Plan plan(const Call& call, const DispatchWork& work, const WarpShare& share) {
    const std::uint32_t rows = work.tokens * call.size;
    const std::uint32_t sharers = row_sharers<T>(Row::template items<T>(work.exchange.shape), rows, share.step);
    Plan plan{.sharers = sharers, .parts = rows * (sharers + 1) <= share.step ? sharers + 1 : sharers, .own = 0};
    if (own_rows_stay<tallies>(work)) plan.own = work.tokens * plan.parts;
    return plan;
  }
  // `i`: among all units; the rows of a token are neighbours.
  static WEFT_FN Unit unit(const Call& call, const Plan& plan, std::uint32_t i) {
    if constexpr (tallies) {
      if (i < plan.own) return {i / plan.parts, call.rank, i % plan.parts};
      const std::uint32_t skipped = plan.own != 0 ? 1 : 0, others = call.size - skipped;
      if (others == 0) return {kNone, call.rank, 0};
      const std::uint32_t row = (i - plan.own) / plan.parts, turn = call.rank + skipped + row % others;
      return {row / others, turn < call.size ? turn : turn - call.size, (i - plan.own) % plan.parts};
    }
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
    // Takes items of an own row from the caller's tensor. By all lanes.
    WEFT_FN void make(T& team, const DispatchWork& work, std::uint32_t token) {
      typename Row::template Given<T> given[kAtOnce];
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) {
        given[j] = Row::template read<T>(work, token, first + j * step + lane);
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kAtOnce; ++j) moving[j] = Row::encode(team, work.exchange.shape, given[j]);
    }
    // Stores the items that have come.
    WEFT_FN void put(T& team, const DispatchWork& work, const Entries<T>& entries) {
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
    }
    // Puts their slots back to rest.
    WEFT_FN void rearm(T& team, const ExchangeShape& shape) {
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
    const bool stays = tallies && plan.own != 0 && unit.sender == s.rank();
    const std::uint32_t count = items.count;
    if (stays) items.count = 0;  // none comes by a slot
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
    if (stays && takes) {
      items.count = count;
      for (std::uint32_t first = items.first; first < count; first += Items<T>::kAtOnce * items.step) {
        items.begin(first);
        items.make(team, work, unit.token);
        items.put(team, work, entries);
      }
    } else if (takes) {
      for (std::uint32_t first = items.first; first < items.count; first += Items<T>::kAtOnce * items.step) {
        if (first != items.first) items.begin(first);
        const auto arrived = [&] {
          items.look(team, s, shape);
          return team.all_lanes(items.arrived);
        };
        if (!wait(team, s, {.phase = 1, .warp = true}, arrived, late)) return false;
        items.put(team, work, entries);
        items.rearm(team, shape);
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
    std::uint32_t most = shape.tokens * s.size() * plan.parts;
    if (tallies && plan.own != 0) most = plan.own + shape.tokens * (s.size() - 1) * plan.parts;
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

}  // namespace weft::detail
