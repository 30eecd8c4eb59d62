// Who sends how many rows to whom, and where they lie: what tells one gather from another.
#pragma once

#include <cstdint>

#include "core/channel.hpp"
#include "team/function.hpp"
#include "weft/types.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kEverybody = 0xffffffffu;

// Known on the host. All-gather, all-to-all and broadcast are three settings of this.
struct EqualShares {
  std::uint64_t rows;         // that one rank sends to another
  std::uint64_t input_step;   // rows from what goes to one rank to what goes to the next; 0: all get the same
  std::uint64_t output_step;  // rows from what came from one rank to what came from the next
  std::uint32_t sender;       // the only rank that sends, or kEverybody

  static constexpr bool kPadded = false;
  static constexpr bool kKnownEarly = true;  // before the kernel before has ended
  WEFT_FN bool fit(const Call&) const { return true; }
  WEFT_FN std::uint64_t rows_of(std::uint32_t rank) const { return sender == kEverybody || sender == rank ? rows : 0; }
  WEFT_FN std::uint64_t most_rows(const Call&) const { return rows; }
  // Of a tensor in which all ranks' rows lie one after the other.
  WEFT_FN std::uint64_t offset_of(const Call&, std::uint32_t rank) const { return rank * rows; }
  WEFT_FN std::uint64_t input_row(const Call&, std::uint32_t receiver) const { return receiver * input_step; }
  WEFT_FN std::uint64_t output_row(const Call&, std::uint32_t from) const { return from * output_step; }
};

// Read by the kernel from memory of the device, where every rank finds the same numbers.
struct CountedShares {
  const std::int32_t* counts;  // of every rank; with a split: one number that all ranks share
  std::uint32_t ranks;
  Split split;
  SlotKind slot;
  std::uint32_t slot_rows;   // aligned: a multiple of this; fixed: this
  bool own_padded;           // the tensor with this rank's rows alone has its slot's pads, too
  std::uint64_t own_rows;    // what that tensor has room for
  std::uint64_t whole_rows;  // … and the one with all ranks' slots

  static constexpr bool kPadded = true;
  static constexpr bool kKnownEarly = false;

  // What loops over ranks is not inlined: in every place that asks, for every rank of a batch, it made kernels so long
  // that they took minutes to compile.

  WEFT_FN std::int64_t count(std::uint32_t rank) const {
    if (split == Split::none) return counts[rank];
    const std::int64_t all = counts[0], parts = ranks;
    if (split == Split::balanced) return all / parts + (rank < all % parts ? 1 : 0);
    const std::int64_t part = (all + parts - 1) / parts, begin = rank * part;
    return begin >= all ? 0 : (all - begin < part ? all - begin : part);
  }
  WEFT_FN std::uint64_t rows_of(std::uint32_t rank) const { return static_cast<std::uint64_t>(count(rank)); }
  WEFT_SLOW std::uint64_t most_rows(const Call&) const {
    std::uint64_t most = 0;
    for (std::uint32_t rank = 0; rank < ranks; ++rank) most = rows_of(rank) > most ? rows_of(rank) : most;
    return most;
  }
  WEFT_FN std::uint64_t slot_rows_of(const Call& call, std::uint32_t rank) const {
    switch (slot) {
      case SlotKind::aligned:
        return (rows_of(rank) + slot_rows - 1) / slot_rows * slot_rows;
      case SlotKind::max:
        return most_rows(call);
      case SlotKind::fixed:
        return slot_rows;
      default:
        return rows_of(rank);
    }
  }
  WEFT_SLOW std::uint64_t offset_of(const Call& call, std::uint32_t rank) const {
    if (slot == SlotKind::max || slot == SlotKind::fixed) return rank * slot_rows_of(call, rank);
    std::uint64_t rows = 0;
    for (std::uint32_t other = 0; other < rank; ++other) rows += slot_rows_of(call, other);
    return rows;
  }
  // Nothing is read or written where this is false.
  WEFT_SLOW bool fit(const Call& call) const {
    for (std::uint32_t rank = 0; rank < (split == Split::none ? ranks : 1); ++rank) {
      if (counts[rank] < 0) return false;
    }
    if (slot == SlotKind::fixed && most_rows(call) > slot_rows) return false;
    const std::uint64_t own = own_padded ? slot_rows_of(call, call.rank) : rows_of(call.rank);
    return own <= own_rows && offset_of(call, ranks) <= whole_rows;
  }
  WEFT_FN std::uint64_t input_row(const Call&, std::uint32_t) const { return 0; }
  WEFT_FN std::uint64_t output_row(const Call& call, std::uint32_t from) const { return offset_of(call, from); }
};

}  // namespace weft::detail
