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
template <DataType type, std::uint32_t known_size, bool casts, std::uint32_t held>
struct NormedOneHop : OneHopCrossing<type, known_size, true> {
  using Hop = OneHopCrossing<type, known_size, true>;
  using Units = CrossingUnits<type, known_size, true>;
  using typename Units::Instance;
  using typename Units::R;
  using typename Units::Wire;
  using Norm = RmsNorm<R, casts>;
  using Work = NormedCrossingWork;

  // Packs of the slot that has the most.
  template <class Table>
  static WEFT_FN std::uint64_t most_packs(const Work& work, const Table& table, std::uint32_t ranks) {
    const std::uint64_t residual = work.norm.residual != nullptr ? table.most_rows() * work.norm.row_packs : 0;
    return Hop::most_units(work.shards, table, ranks) + residual;
  }

  template <Team T, class Table>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Table& table) {
    Hop::send(team, s, work.shards, table, nullptr);
    if (work.norm.residual == nullptr) return;
    const auto [start, step] = share_of(team);
    const Circle takers = work.shards.partition.sharing(s.rank());
    const std::uint64_t row_bytes = std::uint64_t{work.norm.row_packs} * sizeof(Pack);
    const Rows<true> residual(work.norm.residual, table.rows_of(s.rank()), row_bytes,
                              work.norm.residual_stride * sizeof(Pack));
    const std::uint64_t behind = packs_of_group(work, table, s.rank());
    for (std::uint64_t i = start; i < residual.packs(); i += step) {
      const Pack payload = residual.get(i);
      for (std::uint32_t turn = 1; turn < takers.size; ++turn) {
        Pack* const to = Units::slot(s, takers.rank_in_turn(s.rank(), turn), area(s), s.rank());
        Units::put_unit(team, s, to + behind + i, payload);
      }
    }
  }

  // Sums and norms all rows that this rank takes. A block serves a row.
  template <Team T, class Table, class Weights>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Table& table, const Weights& weights) {
    const Circle owners = work.shards.partition.sharing(s.rank());
    std::uint32_t uses = 0, owner = owners.first;
    std::uint64_t before = 0;  // rows of the owners before this one
    for (std::uint64_t row = team.block_rank() - 1;; row += team.blocks() - 1) {
      while (owner < owners.end() && row - before >= table.rows_of(owner)) before += table.rows_of(owner++);
      if (owner == owners.end()) return true;
      const auto in_shard = static_cast<std::uint32_t>(row - before);
      if (!norm_row(team, s, work, table, weights, uses, owner, in_shard)) return false;
    }
  }

 private:
  using Area = typename Units::Area;
  static WEFT_FN Area area(const Session& s) { return {s.layout().one_shot, s.layout().one_shot_packs}; }
  template <class Table>
  static WEFT_FN std::uint64_t packs_of_group(const Work& work, const Table& table, std::uint32_t rank) {
    const Circle group = work.shards.partition.group_of(rank);
    return rows_before(table, group, group.end()) * work.norm.row_packs;
  }

  template <Team T, class Table, class Weights>
  static WEFT_FN bool norm_row(T& team, const Session& s, const Work& work, const Table& table, const Weights& weights,
                               std::uint32_t& uses, std::uint32_t owner, std::uint32_t row) {
    const CrossingPartition& partition = work.shards.partition;
    const Circle senders = partition.summing(owner);
    const bool sends = s.rank() >= senders.first && s.rank() < senders.end(), owns = s.rank() == owner;
    const Rows<true> input = sends ? work.shards.template part_of<true>(table, owner) : Rows<true>{};
    const std::uint64_t packs = area(s).packs, first = std::uint64_t{row} * work.norm.row_packs;
    Pack* const slots = Units::slot(s, s.rank(), area(s), 0);
    Pack* const parts = slots + partition.row_in_group(table, owner) * work.norm.row_packs + first;
    Pack* const residual = slots + owner * packs + packs_of_group(work, table, owner) + first;
    NormWork norm = work.norm_at(partition.output_row(table, owner));
    const bool adds = norm.residual != nullptr && !owns;
    if (!owns) {
      norm.residual = norm.residual_output = nullptr;
      norm.residual_stride = norm.residual_output_stride = 0;
    }
    const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
      constexpr std::uint32_t some = sizeof(sums) / sizeof(Pack);
      const std::uint32_t step = team.size(), left = norm.row_packs - i;
      Pack own[some] = {};
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (sends && k * step < left) own[k] = input.get(first + i + k * step);
      }
      return Units::template take_sums<some>(team, s, senders, parts + i, packs, step, left, own, sums) &&
             (!adds || add_residuals<some>(team, s, residual + i, owner, step, left, sums));
    };
    return Norm::template finish<held>(team, norm, row, weights, uses, take, KeepsOwn{});
  }
  // Those of another rank's shard, when they have arrived.
  template <std::uint32_t some, Team T>
  static WEFT_FN bool add_residuals(T& team, const Session& s, Pack* slot, std::uint32_t owner, std::uint32_t step,
                                    std::uint32_t left, Pack (&sums)[some]) {
    Pack received[some] = {};
    const auto arrived = [&] {
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (k * step < left) received[k] = team.load(slot + k * step);
      }
      bool all = true;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k)
        all &= k * step >= left || Wire::template arrived<T::kAtomicBytes>(received[k], s.epoch);
      return all;
    };
    if (!wait(team, s, {.phase = 1}, arrived, [&] { return owner; })) return false;
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < some; ++k) {
      if (k * step >= left) continue;
      team.store(slot + k * step, kRestPack);
      sums[k] = Norm::added(sums[k], Wire::decode(received[k]));
    }
    return true;
  }
  // The new residuals of other ranks' shards are not kept.
  struct KeepsOwn : NothingElse {
    static constexpr bool kKeepsAll = false;
  };
};

}  // namespace weft::detail
