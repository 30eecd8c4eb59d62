// Takes a slot's rows, or a shard of them, out of a tensor that holds all slots. Other ranks do not matter: there is
// neither an epoch nor a header, and no block waits.
#pragma once

#include <cstdint>

#include "numeric/rows.hpp"
#include "ops/moves/move_plan.hpp"
#include "ops/moves/row_partition.hpp"
#include "ops/moves/take_work.hpp"
#include "protocol/one_rank.hpp"

namespace weft::detail {

template <bool aligned16>
struct TakeRows {
  using Work = TakeWork;
  static constexpr int kMostThreads = kMoveThreads;

  // By all threads of all blocks. False: the call has failed.
  template <Team T>
  static WEFT_FN bool run(T& team, const Call& call, const TakeWork& work) {
    const CountedPartition::Prefetched counts = work.slots.prefetch(team);
    if (!may_begin(team, call)) return false;
    Call of_slots{};  // the table is of slots, not of ranks
    of_slots.rank = work.slot;
    if (!work.slots.prepare(team, of_slots, counts)) {
      return fail_alone(team, call, Errc::capacity, find_misfit(work.slots, work.slot));
    }
    const auto table = work.slots.table(team);
    const std::uint64_t rows = table.rows_of(work.slot);
    const std::uint64_t shared = work.split_slots ? table.slot_rows_of(work.slot) : rows;
    const RowPart part = row_part(shared, work.sharding, work.shards, work.shard);
    const std::uint64_t taken = filled(part, rows);
    if (taken > work.output_rows) {
      return fail_alone(team, call, Errc::capacity,
                        {Misfit::taken_rows, work.slot, static_cast<std::int64_t>(taken),
                         static_cast<std::int64_t>(work.output_rows)});
    }
    copy(team, work, table.offset_of(work.slot) + part.begin, taken);
    return true;
  }

 private:
  template <Team T>
  static WEFT_FN void copy(T& team, const TakeWork& work, std::uint64_t first, std::uint64_t rows) {
    constexpr std::uint32_t kAtOnce = 4;
    auto* const output = static_cast<std::byte*>(work.output);
    const Rows<aligned16> from(static_cast<const std::byte*>(work.input) + first * work.input_stride, rows,
                               work.row_bytes, work.input_stride);
    const Rows<aligned16> to(output, rows, work.row_bytes, work.output_stride);
    const Rows<aligned16> pads(output + rows * work.output_stride, work.output_rows - rows, work.row_bytes,
                               work.output_stride);
    const std::uint64_t begin = std::uint64_t{team.block_rank()} * team.size() + team.thread_rank();
    const std::uint64_t step = std::uint64_t{team.blocks()} * team.size();
    for (std::uint64_t i = begin; i < to.packs(); i += kAtOnce * step) {
      Pack packs[kAtOnce];
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k) packs[k] = from.load(i + k * step);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < kAtOnce; ++k) to.store(i + k * step, packs[k]);
    }
    for (std::uint64_t i = begin; i < pads.packs(); i += step) pads.store(i, Pack{});
  }
};

}  // namespace weft::detail
