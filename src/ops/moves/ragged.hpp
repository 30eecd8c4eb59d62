// What ragged calls do with their counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "comm/arguments.hpp"
#include "ops/moves/shares.hpp"

namespace weft::detail {

// Why NCCL carries no ragged call, and what it does carry.
inline constexpr std::string_view kCountsHint =
    "; counts are in memory that kernels read, and NCCL would need them on the host: it gathers and scatters equal "
    "shares alone";
// Slots as a caller describes them by arguments `name` and `name`_rows, of a kind up to `last`.
void check_slots(const char* name, SlotKind kind, SlotKind last, std::size_t slot_rows);
// The counts of a ragged call.
void check_counts(const GroupState& group, const Counts& counts);
// `own_padded`, `own_rows`, `whole_rows`: see CountedShares.
CountedShares counted_shares(const GroupState& group, const Counts& counts, bool own_padded, std::size_t own_rows,
                             std::size_t whole_rows);
// The row of a tensor with all ranks' slots with which this rank's begins, or kAnyRow.
std::size_t own_place(const GroupState& group, const Counts& counts);
// Numbers that every block reads for itself, of so many slots, must not be what another one writes.
void check_numbers_apart(const Counts& counts, std::size_t slots, const Extent& output);
// As far as they must be the same on every rank: as a number, and for words.
std::uint32_t fingerprint(const Counts& counts);
struct CountsWords {
  SlotKind slot;
  Split split;
  std::uint32_t slot_rows;
  std::string text() const;
};
CountsWords words_of(const Counts& counts);

}  // namespace weft::detail
