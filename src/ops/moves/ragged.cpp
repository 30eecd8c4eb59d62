#include "ops/moves/ragged.hpp"

#include <algorithm>

#include "base/enum_text.hpp"
#include "base/fingerprint.hpp"
#include "ops/moves/numbers_work.hpp"

namespace weft::detail {
namespace {

// Other kinds of slots ignore Counts::slot_rows.
bool has_slot_rows(Padding kind) {
  return kind == Padding::aligned || kind == Padding::fixed;
}

std::size_t slots_in(const GroupState& group, std::size_t sharing) {
  return static_cast<std::size_t>(group.size()) / sharing;
}
std::size_t counted(const GroupState& group, const Counts& counts, std::size_t sharing) {
  return counts.sharding == Sharding::none ? slots_in(group, sharing) : 1;
}

// Checks numbers that kernels read, or `count` of them that the host reads.
void check_numbers(const GroupState& group, const Counts& counts, const char* name, const std::int32_t* numbers,
                   std::size_t count) {
  require(numbers != nullptr, "{}: null", name);
  check_aligned(name, numbers, sizeof(std::int32_t));
  if (!counts.on_host) return check_buffer(group, name, numbers);
  for (std::size_t i = 0; i < count; ++i) {
    require(numbers[i] >= 0, "{}[{}]: {} is not between 0 and {}", name, i, numbers[i], INT32_MAX);
  }
}

}  // namespace

void check_padding(const char* name, const char* rows_name, Padding kind, Padding last, std::size_t slot_rows) {
  check_choice(name, kind, last);
  const std::size_t least = kind == Padding::aligned ? 1 : 0;
  require(!has_slot_rows(kind) || (slot_rows >= least && slot_rows <= INT32_MAX), "{}: {} is not between {} and {}",
          rows_name, slot_rows, least, INT32_MAX);
}

void check_group_ranks(const GroupState& group, std::size_t group_ranks) {
  const auto size = static_cast<std::size_t>(group.size());
  require(group_ranks > 0 && size % group_ranks == 0, "group_ranks: {} is no divisor of the group's {}", group_ranks,
          size);
}

void check_group_ranks(const GroupState& group, std::size_t group_ranks, const Counts& counts) {
  check_group_ranks(group, group_ranks);
  require(counts.sharding == Sharding::none, "counts.sharding: {} is not none; counts are of every rank",
          name(counts.sharding));
}

void check_counts(const GroupState& group, const Counts& counts, std::size_t sharing) {
  check_choice("counts.sharding", counts.sharding, Sharding::ceil);
  check_padding("counts.padding", "counts.slot_rows", counts.padding, Padding::per_rank, counts.slot_rows);
  check_numbers(group, counts, "counts.rows", counts.rows, counted(group, counts, sharing));
  if (counts.padding == Padding::per_rank) {
    return check_numbers(group, counts, "counts.slots", counts.slots, slots_in(group, sharing));
  }
  require(counts.slots == nullptr, "counts.slots: not null, and padding is {}", name(counts.padding));
}

std::optional<KernelCall> numbers_step(const GroupState& group, const Counts& counts, std::size_t sharing) {
  if (!counts.on_host) return std::nullopt;
  NumbersWork work{.from = {}, .to = group.host_numbers()};
  std::copy_n(counts.rows, counted(group, counts, sharing), work.from.rows());
  const std::int32_t* const slots = counts.slots;
  if (slots != nullptr) std::copy_n(slots, slots_in(group, sharing), work.from.slots());
  const KernelFor<NumbersWork> kernel = find_kernel(NumbersQuery{});
  return KernelCall{
      .call = {}, .bound = kernel.with(work), .blocks = 1, .threads = kernel.kernel->most_threads, .stream = nullptr};
}

CountedPartition counted_partition(const GroupState& group, const Counts& counts, bool own_padded, std::size_t own_rows,
                                   std::size_t whole_rows) {
  HostNumbers* const taken = group.host_numbers();
  const bool on_host = counts.on_host;
  return {.counts = on_host ? taken->rows() : counts.rows,
          .ranks = static_cast<std::uint32_t>(group.size()),
          .sharding = counts.sharding,
          .padding = counts.padding,
          .slot_rows = has_slot_rows(counts.padding) ? static_cast<std::uint32_t>(counts.slot_rows) : 0,
          .slots = on_host && counts.slots != nullptr ? taken->slots() : counts.slots,
          .own_padded = own_padded,
          .own_rows = own_rows,
          .whole_rows = whole_rows};
}

std::size_t own_place(const GroupState& group, const Counts& counts) {
  const auto rank = static_cast<std::size_t>(group.rank());
  if (rank == 0) return 0;
  return counts.padding == Padding::fixed ? rank * counts.slot_rows : kAnyRow;
}

void check_numbers_apart(const Counts& counts, std::size_t slots, const Extent& output) {
  if (counts.on_host) return;
  const auto check = [&](const char* name, const void* data, std::size_t numbers) {
    const std::size_t bytes = numbers * sizeof(std::int32_t);
    check_overlap({name, data, 1, bytes, bytes}, output, kNowhere);
  };
  check("counts.rows", counts.rows, counts.sharding == Sharding::none ? slots : 1);
  if (counts.slots != nullptr) check("counts.slots", counts.slots, slots);
}

std::uint32_t fingerprint(const Counts& counts) {
  return fingerprint("counts", counts.padding, has_slot_rows(counts.padding) ? counts.slot_rows : 0, counts.sharding);
}

CountsWords words_of(const Counts& counts) {
  return {.padding = counts.padding,
          .sharding = counts.sharding,
          .slot_rows = has_slot_rows(counts.padding) ? static_cast<std::uint32_t>(counts.slot_rows) : 0};
}

std::string CountsWords::text() const {
  return fmt::format("padding {}{}{}", name(padding), has_slot_rows(padding) ? fmt::format(" of {}", slot_rows) : "",
                     sharding == Sharding::none ? "" : fmt::format(", sharding {}", name(sharding)));
}

}  // namespace weft::detail
