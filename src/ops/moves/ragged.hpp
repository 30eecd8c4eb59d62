// Checks and descriptions of ragged calls' counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/arguments.hpp"
#include "kernel/kernel.hpp"
#include "ops/moves/row_partition.hpp"
#include "weft/collectives.hpp"

namespace weft::detail {

// The reason why NCCL carries no ragged call, and the calls that it carries.
inline constexpr std::string_view kCountsHint =
    "; counts are in memory that kernels read, and NCCL would need them on the host: it gathers and scatters equal "
    "shares alone";
// Checks slots that a caller describes by arguments `name` and `rows_name`, of a kind up to `last`.
void check_padding(const char* name, const char* rows_name, Padding kind, Padding last, std::size_t slot_rows);
// Checks the size of groups whose ranks share rows …
void check_group_ranks(const GroupState& group, std::size_t group_ranks);
// … and that counts are of every rank.
void check_group_ranks(const GroupState& group, std::size_t group_ranks, const Counts& counts);
// Checks the counts of a ragged call. `sharing`: neighbours that have one count and one slot.
void check_counts(const GroupState& group, const Counts& counts, std::size_t sharing = 1);
// The step before the call's kernel, if counts are on the host.
std::optional<KernelCall> numbers_step(const GroupState& group, const Counts& counts, std::size_t sharing = 1);
// `own_padded`, `own_rows`, `whole_rows`: see CountedPartition.
CountedPartition counted_partition(const GroupState& group, const Counts& counts, bool own_padded, std::size_t own_rows,
                                   std::size_t whole_rows);
// In a tensor with all ranks' slots: the row at which this rank's slot begins, or kAnyRow.
std::size_t own_place(const GroupState& group, const Counts& counts);
// Every block reads the numbers of all `slots` slots itself, so no block may write to them: `output` must lie apart.
void check_numbers_apart(const Counts& counts, std::size_t slots, const Extent& output);
// The values that must be the same on every rank: as a number, and for words.
std::uint32_t fingerprint(const Counts& counts);
struct CountsWords {
  Padding padding;
  Sharding sharding;
  std::uint32_t slot_rows;
  std::string text() const;
};
CountsWords words_of(const Counts& counts);

}  // namespace weft::detail
