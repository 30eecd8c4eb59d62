#include "weft/parallel.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "core/argument.hpp"

namespace weft {

void ParallelLayout::check() const {
  const auto divides = [&](int value) { return value >= 1 && tp % value == 0; };
  const std::string divisor = fmt::format("a divisor of tp, {}", tp);
  detail::check_argument(tp >= 1, "ParallelLayout::tp", tp, "1 or more");
  detail::check_argument(divides(dp), "ParallelLayout::dp", dp, divisor);
  detail::check_argument(divides(ep), "ParallelLayout::ep", ep, divisor);
  detail::check_argument(moe_dense_tp == 0 || divides(moe_dense_tp), "ParallelLayout::moe_dense_tp", moe_dense_tp,
                         "0 or " + divisor);
}

std::vector<int> ParallelLayout::block(int rank, int size) const {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), rank / size * size);
  return ranks;
}

std::vector<int> ParallelLayout::across(int rank, int stride) const {
  std::vector<int> ranks;
  for (int other = rank % stride; other < tp; other += stride) ranks.push_back(other);
  return ranks;
}

RowRange shard_of(std::size_t rows, int parts, int part, Split split) {
  detail::check_argument(parts >= 1, "parts", parts, "1 or more");
  detail::check_argument(part >= 0 && part < parts, "part", part, fmt::format("between 0 and {}", parts - 1));
  const auto n = static_cast<std::size_t>(parts), p = static_cast<std::size_t>(part);
  switch (split) {
    case Split::balanced:
      return {p * (rows / n) + std::min(p, rows % n), (p + 1) * (rows / n) + std::min(p + 1, rows % n)};
    case Split::ceil: {
      const std::size_t each = (rows + n - 1) / n;
      return {std::min(p * each, rows), std::min((p + 1) * each, rows)};
    }
    case Split::none:
      return {0, rows};
  }
  throw Error(Errc::invalid_argument, fmt::format("split: {} is not none, balanced or ceil", static_cast<int>(split)));
}

std::size_t slot_rows_of(std::size_t rows, SlotKind kind, std::size_t slot_rows) {
  switch (kind) {
    case SlotKind::dense:
      return rows;
    case SlotKind::aligned:
      if (slot_rows == 0) break;
      return (rows + slot_rows - 1) / slot_rows * slot_rows;
    case SlotKind::max:
    case SlotKind::fixed:
      return slot_rows;
  }
  throw Error(Errc::invalid_argument, fmt::format("slot: {} of {} rows is none", static_cast<int>(kind), slot_rows));
}

}  // namespace weft
