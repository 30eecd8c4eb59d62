// Puts a few numbers of every rank, and the offsets of ragged calls, on every rank. One hop: each rank pushes its
// numbers to every peer as lines, which carry their own arrival whatever the bits. One data block, because its threads
// must meet to add up the received numbers.
#pragma once

#include <cstdint>

#include "ops/moves/counts_work.hpp"
#include "ops/moves/row_partition.hpp"
#include "protocol/handshake.hpp"
#include "wire/line.hpp"

namespace weft::detail {

struct PushCounts {
  using Work = CountsWork;
  using Handshake = detail::Handshake<0>;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;
  static constexpr BeginScope kBeginScope = BeginScope::block;

  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work&) {
    return {.header = team.block_rank() == 0 ? Handshake::address(team, call) : HeaderAddress{}};
  }

  // The payload of a thread's first line.
  using Prefetched = Pack;
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    return payload_of(work, team.thread_rank() % work.lines());
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched& prefetched) {
    if (team.block_rank() == 0) return Handshake::template take_part<phase>(team, s, p.header);
    if (team.block_rank() != 1) return true;
    if constexpr (phase == 0) {
      send(team, s, work, prefetched);
      return true;
    } else {
      if (!team.all(receive(team, s, work))) return false;
      if (derive(team, s, work)) return true;
      if (team.thread_rank() == 0) {
        report_misfit(team, id_of(s), {.code = Errc::capacity, .phase = phase}, why_not(s, work));
      }
      return false;
    }
  }

 private:
  static WEFT_FN Pack payload_of(const Work& work, std::uint32_t line) {
    const auto word = [&](std::uint32_t column) {
      return column < work.columns ? static_cast<std::uint32_t>(work.input[column]) : 0u;
    };
    return {{word(2 * line), word(2 * line + 1), 0, 0}};
  }
  static WEFT_FN void write(const Work& work, std::uint32_t at, std::int32_t value) {
    work.output[at] = value;
    if (work.host_output != nullptr) work.host_output[at] = value;
  }
  static WEFT_FN void write_line(const Work& work, std::uint32_t sender, std::uint32_t line, const Pack& payload) {
    for (std::uint32_t k = 0; k < 2 && 2 * line + k < work.columns; ++k)
      write(work, work.place_of(sender, 2 * line + k), static_cast<std::int32_t>(payload.word[k]));
    if (line == 0 && sender % work.group_ranks == 0)
      write(work, work.rows + sender / work.group_ranks, static_cast<std::int32_t>(payload.word[0]));
  }

  static WEFT_FN Pack* place_of(const Session& s, std::uint32_t owner, std::uint32_t sender, std::uint32_t line) {
    const std::uint64_t bank = s.epoch % kBanks * s.size();
    return reinterpret_cast<Pack*>(region_of(*s.call, owner) + s.layout().one_shot) +
           (bank + sender) * s.layout().one_shot_packs + line;
  }

  // Calls `serve(turn, line)` for this thread's lines of all turns, until it returns false.
  template <Team T, class Serve>
  static WEFT_FN bool each_line(T& team, const Session& s, const Work& work, Serve serve) {
    for (std::uint32_t i = team.thread_rank(); i < s.size() * work.lines(); i += team.size()) {
      if (!serve(i / work.lines(), i % work.lines())) return false;
    }
    return true;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Pack& prefetched) {
    bool first = true;
    each_line(team, s, work, [&](std::uint32_t turn, std::uint32_t line) {
      const Pack payload = first ? prefetched : payload_of(work, line);
      first = false;
      if (turn == 0) {
        write_line(work, s.rank(), line, payload);
      } else {
        team.store(place_of(s, rank_after(s.rank(), turn, s.size()), s.rank(), line),
                   Line::encode<T::kAtomicBytes>(payload, s.epoch));
      }
      return true;
    });
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work) {
    return each_line(team, s, work, [&](std::uint32_t turn, std::uint32_t line) {
      if (turn == 0) return true;
      const std::uint32_t sender = rank_before(s.rank(), turn, s.size());
      Pack* const from = place_of(s, s.rank(), sender, line);
      Pack wire{};
      const auto arrived = [&] {
        wire = team.load(from);
        return Line::arrived<T::kAtomicBytes>(wire, s.epoch);
      };
      if (!wait(team, s, {.phase = 1}, arrived, [&] { return sender; })) return false;
      team.store(from, kRestPack);
      write_line(work, sender, line, Line::decode(wire));
      return true;
    });
  }

  // Shares of groups, whose counts are in `output`.
  static WEFT_FN CountedPartition partition_of(const Work& work, std::uint32_t groups) {
    return {.counts = work.output + work.rows,
            .ranks = groups,
            .sharding = Sharding::none,
            .padding = work.padding,
            .slot_rows = work.slot_rows,
            .slots = nullptr,
            .own_padded = false,
            .own_rows = kMostRows,
            .whole_rows = kMostRows};
  }
  // The reason for which derive() has returned false. For one thread.
  static WEFT_FN MisfitInfo why_not(const Session& s, const Work& work) {
    for (std::uint32_t rank = 0; rank < s.size(); ++rank) {
      const std::int32_t count = work.output[work.place_of(rank, 0)];
      const std::int32_t first = work.output[work.rows + rank / work.group_ranks];
      if (count != first) return {Misfit::other_count, rank, count, first};
    }
    MisfitInfo misfit = find_misfit(partition_of(work, s.size() / work.group_ranks), s.rank() / work.group_ranks);
    if (misfit.what == Misfit::whole_rows) misfit.what = Misfit::total_rows;
    if (misfit.what != Misfit::total_rows) misfit.place *= work.group_ranks;
    return misfit;
  }

  // By all threads of the block, when all numbers are in `output`. False in all threads if the numbers make no slots.
  template <Team T>
  static WEFT_FN bool derive(T& team, const Session& s, const Work& work) {
    const std::uint32_t ranks = s.size(), groups = ranks / work.group_ranks;
    const auto given = [&](std::uint32_t rank, std::uint32_t column) {
      return work.output[work.place_of(rank, column)];
    };
    bool alike = true;
    for (std::uint32_t rank = team.thread_rank(); rank < ranks; rank += team.size())
      alike = alike && given(rank, 0) == work.output[work.rows + rank / work.group_ranks];
    if (!team.all(alike)) return false;
    const CountedPartition partition = partition_of(work, groups);
    Call of_groups{};  // the table is of groups: this rank's number in it is its group's
    of_groups.rank = s.rank() / work.group_ranks;
    if (!partition.prepare(team, of_groups, partition.prefetch(team))) return false;
    const auto table = partition.table(team);
    const auto put = [&](std::uint32_t at, std::uint64_t value) { write(work, at, static_cast<std::int32_t>(value)); };
    for (std::uint32_t group = team.thread_rank(); group <= groups; group += team.size()) {
      put(work.offsets + group, table.offset_of(group));
      if (group < groups) put(work.slots + group, table.slot_rows_of(group));
    }
    for (std::uint32_t rank = team.thread_rank(); rank < ranks; rank += team.size()) {
      const RowPart shard = shard_of(work, table, rank);
      put(work.shard_slots + rank, shard.rows);
      put(work.shards + rank, filled(shard, table.rows_of(rank / work.group_ranks)));
    }
    for (std::uint32_t column = team.thread_rank(); column < work.columns; column += team.size()) {
      std::int32_t any = 0, every = -1;
      for (std::uint32_t rank = 0; rank < ranks; ++rank) {
        any |= given(rank, column);
        every &= given(rank, column);
      }
      write(work, work.any + column, any);
      write(work, work.every + column, every);
    }
    if (team.thread_rank() != 0) return true;
    std::uint64_t total = 0;
    for (std::uint32_t group = 0; group < groups; ++group) total += table.rows_of(group);
    put(work.total, total);
    put(work.most, table.most_rows());
    return true;
  }

  // A rank's own part of its group's rows or slot.
  template <class Table>
  static WEFT_FN RowPart shard_of(const Work& work, const Table& table, std::uint32_t rank) {
    const std::uint32_t group = rank / work.group_ranks;
    const std::uint64_t shared = work.split_slots ? table.slot_rows_of(group) : table.rows_of(group);
    return row_part(shared, work.sharding, work.group_ranks, rank % work.group_ranks);
  }

  static constexpr std::uint64_t kMostRows = 0x7fffffff;
};

}  // namespace weft::detail
