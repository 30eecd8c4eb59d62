// The rows of a crossing of data-parallel attention (weft/crossings.hpp), as a contender moves them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "weft/parallel.hpp"
#include "workloads/gather_shape.hpp"
#include "workloads/norm_reference.hpp"

namespace weft::cli {

struct CrossingForm {
  ParallelLayout layout = {};
  std::int64_t hidden = 0;
  std::optional<NormForm> norm = {};  // fused with crossings. If it casts, there are no rows of the points' type

  // Tokens of attention group `group`, of which a point has `rows`.
  std::size_t tokens(const Point& point, int group) const;
};

// Every rank has a shard of its group's rows, and a slot for it among all ranks' rows. A group's rows lie shard behind
// shard.
struct CrossingShape {
  GatherShape all = {};         // of all ranks
  std::size_t group_ranks = 1;  // neighbours

  bool operator==(const CrossingShape&) const = default;

  bool gathers() const { return !all.scatters(); }
  std::size_t ranks() const { return all.ranks(); }
  std::size_t hidden() const { return all.widths[0]; }
  std::size_t row_bytes() const { return all.row_bytes(0); }
  bool is_even() const;  // all shards have as many rows

  // These four are of the group that `rank` is in: its first rank, rows, slots and shape.
  std::size_t first_of(std::size_t rank) const { return rank / group_ranks * group_ranks; }
  std::size_t group_rows(std::size_t rank) const;
  std::size_t group_slots(std::size_t rank) const;
  GatherShape group(std::size_t rank) const;  // its shards behind each other, without slots

  // Rows of the ranks before, of the ranks `from` … `rank` − 1.
  std::size_t rows_between(std::size_t from, std::size_t rank) const;

  // Rows of the largest tensor of any rank.
  std::size_t input_rows() const;
  std::size_t output_rows() const;
};

// The rows that point.contender moves, in Weft's slots of point.padding (see GatherModel). NCCL has as many rows for
// each rank as the largest shard, which is Padding::max, and Contender::nccl_grouped has slots without pads. The
// point's operation is gather_sums or scatter_sums.
CrossingShape crossing_shape(const CrossingForm& form, const Point& point);

// The bytes of the largest buffer of a point.
std::size_t crossing_bytes(const CrossingForm& form, const Point& point);

}  // namespace weft::cli
