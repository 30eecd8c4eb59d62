#include "weft/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>

#include "base/argument.hpp"

namespace weft {
namespace {

// `range()` puts the allowed range into words, which takes longer than the check that runs for every row.
template <class Range>
void check_lazily(bool good, std::string_view argument, int value, const Range& range) {
  if (!good) detail::check_argument(good, argument, value, range());
}

std::size_t checked_rows(std::int32_t rows) {
  detail::check_argument(rows >= 0, "rows", rows, "0 or more");
  return static_cast<std::size_t>(rows);
}

}  // namespace

void ParallelLayout::check() const {
  const auto divides = [&](int value) { return value >= 1 && tp % value == 0; };
  const auto divisor = [&] { return fmt::format("a divisor of tp, {}", tp); };
  detail::check_argument(tp >= 1, "ParallelLayout::tp", tp, "1 or more");
  check_lazily(divides(dp), "ParallelLayout::dp", dp, divisor);
  check_lazily(divides(ep), "ParallelLayout::ep", ep, divisor);
  check_lazily(moe_dense_tp == 0 || divides(moe_dense_tp), "ParallelLayout::moe_dense_tp", moe_dense_tp,
               [&] { return "0 or " + divisor(); });
}

const ParallelLayout& ParallelLayout::checked() const {
  check();
  return *this;
}

int ParallelLayout::block_of(int rank, int size) const {
  check_lazily(rank >= 0 && rank < tp, "rank", rank, [&] { return fmt::format("between 0 and {}", tp - 1); });
  return rank / size;
}

int ParallelLayout::place_in(int rank, int size) const {
  return rank - block_of(rank, size) * size;
}

std::vector<int> ParallelLayout::block(int rank, int size) const {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), block_of(rank, size) * size);
  return ranks;
}

std::vector<int> ParallelLayout::across(int rank, int size) const {
  std::vector<int> ranks;
  for (int other = place_in(rank, size); other < tp; other += size) ranks.push_back(other);
  return ranks;
}

RowRange shard_of(std::size_t rows, int parts, int part, Sharding sharding) {
  detail::check_argument(parts >= 1, "parts", parts, "1 or more");
  check_lazily(part >= 0 && part < parts, "part", part, [&] { return fmt::format("between 0 and {}", parts - 1); });
  const auto n = static_cast<std::size_t>(parts), p = static_cast<std::size_t>(part);
  switch (sharding) {
    case Sharding::balanced:
      return {p * (rows / n) + std::min(p, rows % n), (p + 1) * (rows / n) + std::min(p + 1, rows % n)};
    case Sharding::ceil: {
      const std::size_t each = (rows + n - 1) / n;
      return {std::min(p * each, rows), std::min((p + 1) * each, rows)};
    }
    case Sharding::none:
      return {0, rows};
  }
  throw Error(Errc::invalid_argument,
              fmt::format("sharding: {} is not none, balanced or ceil", static_cast<int>(sharding)));
}

std::size_t slot_rows_of(std::size_t rows, Padding kind, std::size_t slot_rows) {
  switch (kind) {
    case Padding::none:
      return rows;
    case Padding::aligned:
      detail::check_argument(slot_rows != 0, "slot_rows", slot_rows, "1 or more, as slots are aligned to it");
      return (rows + slot_rows - 1) / slot_rows * slot_rows;
    case Padding::max:
    case Padding::fixed:
    case Padding::per_rank:
      detail::check_argument(rows <= slot_rows, "rows", rows, fmt::format("at most {}, the rows of a slot", slot_rows));
      return slot_rows;
  }
  throw Error(Errc::invalid_argument,
              fmt::format("padding: {} is not none, aligned, max, fixed or per-rank", static_cast<int>(kind)));
}

std::vector<RowRange> slots_of(std::span<const std::int32_t> rows, Padding kind, std::size_t slot_rows) {
  detail::check_argument(kind != Padding::per_rank, "padding", name(kind), "none, aligned, max or fixed");
  if (kind == Padding::max) {
    slot_rows = 0;
    for (const std::int32_t one : rows) slot_rows = std::max(slot_rows, checked_rows(one));
  }
  std::vector<RowRange> slots;
  std::size_t begin = 0;
  for (const std::int32_t one : rows) {
    slots.push_back({begin, begin + slot_rows_of(checked_rows(one), kind, slot_rows)});
    begin = slots.back().end;
  }
  return slots;
}

std::vector<RowRange> slots_of(std::span<const std::int32_t> rows, std::span<const std::int32_t> slot_rows) {
  detail::check_argument(slot_rows.size() == rows.size(), "slot_rows", slot_rows.size(),
                         fmt::format("{}, a number for each of rows", rows.size()));
  std::vector<RowRange> slots;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::size_t slot = slot_rows_of(checked_rows(rows[i]), Padding::fixed, checked_rows(slot_rows[i]));
    slots.push_back({begin, begin + slot});
    begin += slot;
  }
  return slots;
}

std::vector<std::int32_t> shard_counts(const ParallelLayout& layout, std::span<const std::int32_t> group_rows,
                                       Sharding sharding, std::span<const std::int32_t> slot_rows) {
  layout.check();
  const auto check_size = [&](const char* name, std::size_t size) {
    detail::check_argument(size == static_cast<std::size_t>(layout.dp), name, size,
                           fmt::format("{}, a number for each attention group", layout.dp));
  };
  check_size("group_rows", group_rows.size());
  check_size("slot_rows", slot_rows.size());
  detail::check_argument(sharding != Sharding::none, "sharding", name(sharding), "balanced or ceil");
  const std::vector<RowRange> slots = slots_of(group_rows, slot_rows);
  std::vector<std::int32_t> counts;
  for (int rank = 0; rank < layout.tp; ++rank) {
    const auto group = static_cast<std::size_t>(layout.attn_dp_rank(rank));
    const auto rows = static_cast<std::size_t>(group_rows[group]);
    const RowRange shard = shard_of(slots[group].size(), layout.attn_tp(), layout.attn_tp_rank(rank), sharding);
    counts.push_back(static_cast<std::int32_t>(std::min(shard.end, rows) - std::min(shard.begin, rows)));
  }
  return counts;
}

std::vector<std::int32_t> shard_counts(const ParallelLayout& layout, std::span<const std::int32_t> group_rows,
                                       Sharding sharding, std::size_t slot_rows) {
  if (slot_rows == 0) return shard_counts(layout, group_rows, sharding, group_rows);
  detail::check_argument(slot_rows <= INT32_MAX, "slot_rows", slot_rows, "at most 2^31 − 1");
  const std::vector<std::int32_t> slots(group_rows.size(), static_cast<std::int32_t>(slot_rows));
  return shard_counts(layout, group_rows, sharding, slots);
}

}  // namespace weft
