// Crossings of few rows with a norm, in one hop. Parts of sums go to all ranks that need the rows
// (ops/crossings/one_hop_crossing.hpp), and so do their owners' residuals. Each rank norms all rows that it takes. More
// bytes and more norms than two hops, and half of the latency.
//
// A slot has the shards of a group, one behind the other, and behind them the residual of the sender's own shard.
#pragma once

#include <cstdint>

#include "ops/crossings/one_hop_crossing.hpp"
#include "ops/norm/rms_norm.hpp"
#include "ops/normed_crossings/normed_crossing_work.hpp"

namespace weft::detail {

// `held`: packs of a row that a thread holds.
template <DataType type, std::uint32_t known_size, bool casts, std::uint32_t held, bool gamma_f32 = false>
struct NormedOneHop : OneHopCrossing<type, known_size, true> {
  using Hop = OneHopCrossing<type, known_size, true>;
  using Units = CrossingUnits<type, known_size, true>;
  using typename Units::R;
  using typename Units::Wire;
  using Norm = RmsNorm<R, casts, gamma_f32>;
  using Work = NormedCrossingWork;

  // Packs of the slot that has the most, if `longest` is the longest share.
  template <class Table>
  static WEFT_FN std::uint64_t most_packs(const Work& work, const Table& table, std::uint64_t longest,
                                          std::uint32_t ranks) {
    const std::uint64_t residual = work.norm.residual != nullptr ? longest * work.norm.row_packs : 0;
    return Hop::most_units(work.shards, table, ranks) + residual;
  }

  // `first`: as OneHopCrossing::send(). A row's residual is sent by the threads that norm the row: a new residual may
  // take its place, and they store that later.
  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table, const Pack* first) {
    const bool sends_on = work.norm.residual != nullptr;
    const auto rows = static_cast<std::uint32_t>(sends_on ? table.rows_of(s.rank()) : 0);
    std::uint32_t row = first_row(team);
    Residual payload = residual_of(team, work, row, rows);  // it travels while sums leave
    Hop::send(team, s, work.shards, table, first);
    if (row >= rows) return;
    const Circle takers = work.shards.partition.sharing(s.rank());
    const std::uint64_t behind = packs_of_group(work, table, s.rank());
    typename Units::template SendsOn<T> send_on{team, s, takers, area(s), behind};
    send_on.find_slots();
    do {
      WEFT_UNROLL
      for (std::uint32_t n = 0; n < held; ++n) {
        const std::uint32_t i = team.thread_rank() + n * team.size();
        if (i < work.norm.row_packs) send_on(row * work.norm.row_packs + i, payload.pack[n]);
      }
      row += rows_apart(team);
      payload = residual_of(team, work, row, rows);
    } while (row < rows);
  }

  // Sums and norms all rows that this rank takes. A block serves a row.
  template <Team T, class Table, class Weights>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table, const Weights& weights) {
    std::uint32_t uses = 0, rows = ~0u;  // the first search says how many there are
    for (std::uint32_t row = first_row(team); row < rows; row += rows_apart(team)) {
      const FoundRow found = find(s, work, table, row);
      rows = found.of_all;
      if (row < rows && !norm_row(team, s, work, table, weights, uses, found)) return false;
    }
    return true;
  }

 private:
  using Area = typename Units::Area;
  static WEFT_FN Area area(const Session& s) { return {s.layout().one_shot, s.layout().one_shot_packs}; }
  template <class Table>
  static WEFT_FN std::uint64_t packs_of_group(const Work& work, const Table& table, std::uint32_t rank) {
    const Circle group = work.shards.partition.group_of(rank);
    return rows_before(table, group, group.end()) * work.norm.row_packs;
  }

  // This thread's packs of a row's residual. Threads are enough for whole rows: choose_hops() sees to it.
  struct Residual {
    Pack pack[held];
  };
  template <Team T>
  static WEFT_FN Residual residual_of(T& team, const Work& work, std::uint32_t row, std::uint32_t rows) {
    Residual residual{};
    const typename Norm::Packs packs(static_cast<const Pack*>(work.norm.residual) + row * work.norm.residual_stride, 0);
    WEFT_UNROLL
    for (std::uint32_t n = 0; n < held; ++n) {
      const std::uint32_t i = team.thread_rank() + n * team.size();
      if (row < rows && i < work.norm.row_packs) residual.pack[n] = packs.load(i);
    }
    return residual;
  }

  // A block's rows, of those that its rank takes.
  template <Team T>
  static WEFT_FN std::uint32_t first_row(T& team) {
    return team.block_rank() - 1;
  }
  template <Team T>
  static WEFT_FN std::uint32_t rows_apart(T& team) {
    return team.blocks() - 1;
  }

  struct FoundRow {
    std::uint32_t of_all;           // all rows that this rank takes
    std::uint32_t owner, in_shard;  // for a row below that: its owner, and its number in the owner's shard
  };
  // Row `row` of those that this rank takes. Its own come first.
  template <class Table>
  static WEFT_FN FoundRow find(const Session& s, const Work& work, const Table& table, std::uint32_t row) {
    const Circle owners = work.shards.partition.sharing(s.rank());
    FoundRow found{static_cast<std::uint32_t>(table.rows_of(s.rank())), s.rank(), row};
    Hop::each_rank(s.size(), [&](std::uint32_t owner) {
      const bool takes = owner - owners.first < owners.size && owner != s.rank();
      const std::uint32_t rows = takes ? static_cast<std::uint32_t>(table.rows_of(owner)) : 0;
      if (row - found.of_all < rows) found.owner = owner, found.in_shard = row - found.of_all;
      found.of_all += rows;
    });
    return found;
  }

  template <Team T, class Table, class Weights>
  static WEFT_FN bool norm_row(T& team, const Session& s, const Work& work, const Table& table, const Weights& weights,
                               std::uint32_t& uses, const FoundRow& found) {
    const CrossingPartition& partition = work.shards.partition;
    const std::uint32_t owner = found.owner;
    const Circle senders = partition.summing(owner);
    const bool sends = s.rank() - senders.first < senders.size, owns = s.rank() == owner;
    const std::uint64_t in_group = partition.row_in_group(table, owner), offset = table.offset_of(owner);
    const std::uint64_t row_packs = work.norm.row_packs, packs = area(s).packs;
    const typename Norm::Packs input(work.row_of_input((partition.gathers ? in_group : offset) + found.in_shard), 0);
    Pack* const slots = Units::slot(s, s.rank(), area(s), 0) + found.in_shard * row_packs;
    Pack* const parts = slots + in_group * row_packs;
    Pack* const residual = slots + owner * packs + packs_of_group(work, table, owner);
    NormWork norm = work.norm_at(partition.gathers ? offset : in_group);
    const bool adds = norm.residual != nullptr && !owns;
    if (!owns) {
      norm.residual = norm.residual_output = nullptr;
      norm.residual_stride = norm.residual_output_stride = 0;
    }
    const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
      constexpr std::uint32_t some = sizeof(sums) / sizeof(Pack);
      const typename Units::Taken taken{.step = team.size(), .left = norm.row_packs - i};
      Pack own[some] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (sends && taken.exists(k)) own[k] = input.load(i + k * taken.step);
      }
      Pack theirs[some] = {};
      if (adds) taken.template load<some>(team, residual + i, theirs);  // as far as they have arrived
      return Units::template take_sums<some>(team, s, senders, parts + i, packs, taken, own, sums) &&
             (!adds || add_residuals<some>(team, s, residual + i, owner, taken, theirs, sums));
    };
    return Norm::template finish<held>(team, norm, found.in_shard, weights, uses, take, KeepsOwn{});
  }
  // Adds the residuals of another rank's shard when all have arrived. `received`: as they were loaded once.
  template <std::uint32_t some, Team T>
  static WEFT_FN bool add_residuals(T& team, const Session& s, Pack* slot, std::uint32_t owner,
                                    typename Units::Taken taken, Pack (&received)[some], Pack (&sums)[some]) {
    const auto all_there = [&] { return taken.template all_there<T>(s, received); };
    const auto arrived = [&] {
      if (all_there()) return true;
      taken.template load<some>(team, slot, received);
      return all_there();
    };
    if (!wait(team, s, {.phase = 1}, arrived, [&] { return owner; })) return false;
    taken.template take<some>(team, slot, received,
                              [&](std::uint32_t k, const Pack& payload) { sums[k] = Norm::added(sums[k], payload); });
    return true;
  }
  // The new residuals of other ranks' shards are not kept.
  struct KeepsOwn : NothingElse {
    static constexpr bool kKeepsAll = false;
  };
};

}  // namespace weft::detail
