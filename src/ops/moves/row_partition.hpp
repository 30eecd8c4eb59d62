// Shares describe how many rows each rank sends to each other, and their places. They tell one gather from another.
//
// Partitions are an argument; algorithms ask their table. `prepare` makes it, and all threads of a block share it once
// `prepare` has returned true in each of them. A block, or a warp group of it, also notes one word that follows from
// counts alone. One thread calls `note(most, all)`, with the rows of the longest share and of all; the table's rows are
// there by then.
#pragma once

#include <cstdint>

#include "protocol/detour.hpp"
#include "protocol/session.hpp"
#include "team/team.hpp"
#include "weft/types.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kEverybody = 0xffffffffu;

struct NothingNoted {
  WEFT_FN std::uint64_t operator()(std::uint64_t, std::uint64_t) const { return 0; }
};

// Equal shares, known on the host. All-gather, all-to-all and broadcast are three settings of it, reduce-scatter and
// reduce two. It is its own table.
struct EqualPartition {
  std::uint64_t rows;             // that one rank sends to another
  std::uint64_t input_step;       // rows from one receiver's rows to the next receiver's; 0: all get the same
  std::uint64_t output_step;      // rows from one sender's rows to the next sender's
  std::uint32_t sender;           // the only rank that sends, or has a result; or kEverybody
  bool detour = false;            // by way of all ranks (protocol/flow.hpp)
  std::uint32_t warp_groups = 1;  // each rank's own choice: parts of a block that work like blocks, if executors can

  static constexpr bool kKnown = true;          // known while the previous kernel still runs
  static constexpr bool kFirstRowKnown = true;  // … where this rank's rows begin, at least
  static constexpr bool kPadded = false;
  struct Prefetched {};
  template <Team T>
  WEFT_FN Prefetched prefetch(T&) const {
    return {};
  }
  template <Team T, class Note>
  WEFT_FN bool prepare(T&, const Call&, const Prefetched&, Note) const {
    return true;
  }
  template <Team T>
  WEFT_FN const EqualPartition& table(T&) const {
    return *this;
  }
  template <class Packs>
  WEFT_FN bool takes_detour(const Session&, std::uint64_t, std::uint64_t, bool, Packs) const {
    return detour;
  }
  WEFT_FN std::uint64_t noted() const { return 0; }
  WEFT_FN std::uint64_t hash(std::uint32_t) const { return 0; }
  // Rows that this rank may send; they may be read before `prepare`.
  WEFT_FN std::uint64_t room(const Call& call) const { return rows_of(call.rank); }

  WEFT_FN std::uint64_t rows_of(std::uint32_t rank) const { return sender == kEverybody || sender == rank ? rows : 0; }
  WEFT_FN std::uint64_t most_rows() const { return rows; }
  // The row of a scatter's input at which the rank's result begins.
  WEFT_FN std::uint64_t offset_of(std::uint32_t rank) const { return input_row(rank); }
  WEFT_FN std::uint64_t input_row(std::uint32_t receiver) const { return receiver * input_step; }
  WEFT_FN bool same_for_all() const { return input_step == 0; }
  WEFT_FN std::uint64_t output_row(std::uint32_t from) const { return from * output_step; }
};

// Hashes of counts begin with this number.
inline constexpr std::uint32_t kHashBegin = 0x811c9dc5u;
// Counts are often multiples of a power of two: the upper bits left by multiplication are folded down.
WEFT_FN void mix_into(std::uint32_t& hash, std::uint32_t value) {
  hash = (hash ^ value) * 0x01000193u;
  hash ^= hash >> 15;
}

// A block's table of counts, in the words that its threads share.
template <Team T>
class CountedTable {
 public:
  explicit WEFT_FN CountedTable(T& team) : team_(&team) {}

  WEFT_FN std::uint64_t rows_of(std::uint32_t rank) const { return rows_in(team_->shared(kRows + rank)); }
  WEFT_FN std::uint64_t most_rows() const { return team_->shared(kMost); }
  WEFT_FN std::uint64_t noted() const { return team_->shared(kNoted); }
  // Of all that was found: not the same where ranks have found other counts, but for one case in as many as bits tell
  // apart.
  WEFT_FN std::uint64_t hash(std::uint32_t ranks) const {
    std::uint32_t hash = kHashBegin;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      const std::uint64_t word = team_->shared(kRows + rank);
      mix_into(hash, rows_in(word));
      mix_into(hash, slot_in(word));
    }
    return hash;
  }
  WEFT_FN std::uint64_t slot_rows_of(std::uint32_t rank) const { return offset_of(rank + 1) - offset_of(rank); }
  WEFT_FN std::uint64_t offset_of(std::uint32_t rank) const { return team_->shared(kOffsets + rank); }
  WEFT_FN std::uint64_t output_row(std::uint32_t from) const { return offset_of(from); }
  WEFT_FN std::uint64_t input_row(std::uint32_t) const { return 0; }

 private:
  friend struct CountedPartition;
  // Words: the longest share; what is noted; for each rank its rows and what its own count says of its slot; where
  // slots begin and the last one ends.
  static constexpr std::uint32_t kMost = 0, kNoted = 1, kRows = 2, kOffsets = kRows + kMaxRanks;
  static_assert(kOffsets + kMaxRanks < kSharedWords);
  static WEFT_FN std::uint64_t word_of(std::uint32_t rows, std::uint32_t slot) {
    return static_cast<std::uint64_t>(slot) << 32 | rows;
  }
  static WEFT_FN std::uint32_t rows_in(std::uint64_t word) { return static_cast<std::uint32_t>(word); }
  static WEFT_FN std::uint32_t slot_in(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }

  T* team_;
};

// The kernel reads these counts from memory of the device; every rank finds the same numbers there.
struct CountedPartition {
  const std::int32_t* counts;  // of every rank; with a sharding: one number that all ranks share
  std::uint32_t ranks;
  Sharding sharding;
  Padding padding;
  std::uint32_t slot_rows;         // aligned: a multiple of this; fixed: this
  const std::int32_t* slots;       // per_rank: of every rank
  bool own_padded;                 // the tensor with this rank's rows alone has its slot's pads, too
  std::uint64_t own_rows;          // room of that tensor
  std::uint64_t whole_rows;        // … and of the tensor with all ranks' slots
  std::uint64_t detour_packs = 0;  // that a detour must spare the busiest link (protocol/detour.hpp)
  std::uint32_t warp_groups = 1;   // as EqualPartition::warp_groups

  static constexpr bool kKnown = false;
  static constexpr bool kFirstRowKnown = true;
  static constexpr bool kPadded = true;

  // The numbers of the rank with a thread's number, loaded together with the epoch.
  struct Prefetched {
    std::int32_t count, length;
  };
  template <Team T>
  WEFT_FN Prefetched prefetch(T& team) const {
    return team.thread_rank() < ranks ? said_of(team.thread_rank()) : Prefetched{};
  }

  // By all threads of a block: makes the table. False in all threads if counts do not fit; then nothing may be read or
  // written.
  template <Team T, class Note = NothingNoted>
  WEFT_FN bool prepare(T& team, const Call& call, const Prefetched& prefetched, Note note = {}) const {
    return prepare_for(team, prefetched, note, [&] { return call.rank; });
  }
  // `own()`: which of the counts is this rank's.
  template <Team T, class Note, class Own>
  WEFT_FN bool prepare_for(T& team, const Prefetched& prefetched, Note note, Own own) const {
    using Table = CountedTable<T>;
    bool good = true;
    for (std::uint32_t rank = team.thread_rank(); rank < ranks; rank += team.size()) {
      const Prefetched said = rank == team.thread_rank() ? prefetched : said_of(rank);
      const std::uint32_t rows = rows_in(said.count, rank), length = slot_of(rows, said.length);
      good = good && said.count >= 0 && said.length >= 0 && (padding == Padding::max || rows <= length);
      team.share(Table::kRows + rank, Table::word_of(rows, length));
    }
    if (!team.all(good)) return false;
    for (std::uint32_t rank = team.thread_rank(); rank <= ranks; rank += team.size()) {
      std::uint64_t before = 0, all = 0;
      std::uint32_t most = 0;
      for (std::uint32_t other = 0; other < ranks; ++other) {
        const std::uint64_t word = team.shared(Table::kRows + other);
        if (Table::rows_in(word) > most) most = Table::rows_in(word);
        all += Table::rows_in(word);
        if (other < rank) before += Table::slot_in(word);
      }
      if (padding == Padding::max) before = static_cast<std::uint64_t>(rank) * most;
      if (rank == 0) team.share(Table::kMost, most);
      team.share(Table::kOffsets + rank, before);
      if (rank == ranks) good = good && before <= whole_rows;
      if (rank == ranks) team.share(Table::kNoted, note(most, all));
      if (rank != own()) continue;
      const std::uint64_t word = team.shared(Table::kRows + rank);
      const std::uint32_t padded = padding == Padding::max ? most : Table::slot_in(word);
      good = good && (own_padded ? padded : Table::rows_in(word)) <= own_rows;
    }
    return team.all(good);
  }
  template <Team T>
  WEFT_FN CountedTable<T> table(T& team) const {
    return CountedTable<T>(team);
  }
  // Whether a detour pays for `all` rows, `most` of them one rank's; `packs(rows)` converts rows to packs. Chunks must
  // spare more than lines.
  template <class Packs>
  WEFT_FN bool takes_detour(const Session& s, std::uint64_t most, std::uint64_t all, bool chunks, Packs packs) const {
    if (s.size() < 3) return false;  // the usual answer between two, before anything is counted
    return detail::takes_detour({.ranks = s.size(),
                                 .slots = s.layout().pipeline_slots,
                                 .longest = packs(most),
                                 .worth = (chunks ? kChunksWorth : 1) * detour_packs},
                                [&] { return packs(all); });
  }
  WEFT_FN std::uint64_t room(const Call&) const { return own_rows; }
  WEFT_FN std::uint64_t input_row(std::uint32_t) const { return 0; }
  WEFT_FN bool same_for_all() const { return true; }
  // A rank's rows from `number`, which is the rank's own or the one that all share.
  WEFT_FN std::uint32_t rows_in(std::int32_t number, std::uint32_t rank) const {
    const auto all = static_cast<std::uint32_t>(number);
    if (sharding == Sharding::none) return all;
    if (sharding == Sharding::balanced) return all / ranks + (rank < all % ranks ? 1 : 0);
    const std::uint32_t part = (all + ranks - 1) / ranks, begin = rank * part;
    return begin >= all ? 0 : (all - begin < part ? all - begin : part);
  }
  WEFT_FN Prefetched said_of(std::uint32_t rank) const {
    return {.count = counts[sharding == Sharding::none ? rank : 0],
            .length = padding == Padding::per_rank ? slots[rank] : static_cast<std::int32_t>(slot_rows)};
  }
  // A slot's rows, as far as they follow from its own rows and its given length.
  WEFT_FN std::uint32_t slot_of(std::uint32_t rows, std::int32_t length) const {
    if (padding == Padding::none) return rows;
    if (padding == Padding::aligned) return (rows + slot_rows - 1) / slot_rows * slot_rows;
    return padding == Padding::max ? 0 : static_cast<std::uint32_t>(length);
  }
};

// The reason for which CountedPartition::prepare() has returned false: the first number that does not fit. Cold.
// `partition` is a copy, because the address of a kernel's arguments must not be taken.
template <class Partition>
WEFT_SLOW MisfitInfo find_misfit(Partition partition, std::uint32_t own) {
  const std::uint32_t ranks = partition.ranks;
  const bool longest = partition.padding == Padding::max;
  std::uint64_t slots_rows = 0, own_length = 0;
  std::uint32_t most = 0;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    const typename Partition::Prefetched said = partition.said_of(rank);
    const std::uint32_t rows = partition.rows_in(said.count, rank), length = partition.slot_of(rows, said.length);
    if (said.count < 0) return {Misfit::count, rank, said.count, 0};
    if (said.length < 0) return {Misfit::slot, rank, said.length, 0};
    if (!longest && rows > length) return {Misfit::count_slot, rank, rows, length};
    if (rows > most) most = rows;
    slots_rows += length;
    if (rank == own) own_length = partition.own_padded ? length : rows;
  }
  if (longest) slots_rows = std::uint64_t{ranks} * most;
  const auto as_signed = [](std::uint64_t rows) { return static_cast<std::int64_t>(rows); };
  if (slots_rows > partition.whole_rows) {
    return {Misfit::whole_rows, 0, as_signed(slots_rows), as_signed(partition.whole_rows)};
  }
  if (longest && partition.own_padded) own_length = most;
  return {Misfit::own_rows, own, as_signed(own_length), as_signed(partition.own_rows)};
}

// One of the parts into which `ranks` ranks divide some rows.
struct RowPart {
  std::uint64_t begin, rows;
};
WEFT_FN RowPart row_part(std::uint64_t rows, Sharding sharding, std::uint32_t ranks, std::uint32_t rank) {
  CountedPartition partition{};
  partition.ranks = ranks;
  partition.sharding = sharding;
  const auto all = static_cast<std::int32_t>(rows);
  RowPart part{.begin = 0, .rows = partition.rows_in(all, rank)};
  for (std::uint32_t before = 0; before < rank; ++before) part.begin += partition.rows_in(all, before);
  return part;
}
// The number of a part's rows among the first `filled_rows`.
WEFT_FN std::uint64_t filled(const RowPart& part, std::uint64_t filled_rows) {
  const std::uint64_t from_begin = filled_rows > part.begin ? filled_rows - part.begin : 0;
  return from_begin < part.rows ? from_begin : part.rows;
}

// Reports why a call must not be made; `find()` finds the number that does not fit. By all threads of all blocks.
template <Team T, class Find>
WEFT_FN void report_unfit(T& team, const Session& s, Find find) {
  if (team.block_rank() == 0 && team.thread_rank() == 0)
    report_misfit(team, id_of(s), {.code = Errc::capacity}, find());
}

// Begins a call with shares, in all threads of a block. False if the call must not be made: nothing is sent then, and
// the control block reports the reason.
template <class Partition, Team T, class Note = NothingNoted>
WEFT_FN bool partition_fits(T& team, const Session& s, const Partition& partition,
                            const typename Partition::Prefetched& prefetched, Note note = {}) {
  if (partition.prepare(team, *s.call, prefetched, note)) return true;
  if constexpr (!Partition::kKnown) {
    report_unfit(team, s, [&] {
      if constexpr (requires { partition.misfit(team, s.rank()); }) {
        return partition.misfit(team, s.rank());
      } else {
        return find_misfit(partition, s.rank());
      }
    });
  }
  return false;
}

}  // namespace weft::detail
