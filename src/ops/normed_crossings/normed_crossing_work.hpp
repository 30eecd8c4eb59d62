// Arguments of the kernel of a crossing with residual and norm.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/crossings/crossing_work.hpp"
#include "ops/norm/norm_work.hpp"
#include "ops/normed_crossings/normed_rows.hpp"

namespace weft::detail {

// Packs of a row that a thread holds, at most: if nothing flows in chunks, and in one hop if something may. In one hop
// no thread can load a pack again, as another rank keeps the row. Longer rows take two hops, and the kernel with
// chunks.
inline constexpr std::uint32_t kHeldWithoutChunks = 2, kMostHeldInOneHop = 8;
inline constexpr std::uint32_t kMostRowPacksHeld = 1024;

struct NormedCrossingWork {
  CrossingWork shards;  // input, counts and limits; it has no output
  NormWork norm;        // residual and new residual of this rank's shard; all rows of the outputs
  NormedRowShape shape;

  // In the hop whose rows are longer.
  WEFT_FN std::uint32_t most_row_packs() const {
    return norm.row_packs > shape.packs() ? norm.row_packs : shape.packs();
  }
  WEFT_FN const std::byte* row_of_input(std::uint64_t row) const {
    return static_cast<const std::byte*>(shards.input) + row * shards.input_stride;
  }
  template <bool casts>
  WEFT_FN NormedRows<casts> outputs() const {
    return {norm, shape};
  }
  template <bool casts, class Table>
  WEFT_FN NormedStream<casts> stream_of(const Table& table, std::uint32_t owner) const {
    return {outputs<casts>(), shards.partition.output_row(table, owner)};
  }
  // The norm of this rank's shard: its rows are the outputs' from `first` on.
  WEFT_FN NormWork norm_at(std::uint64_t first) const {
    NormWork own = norm;
    const auto further = [](void* data, std::uint64_t bytes) { return static_cast<std::byte*>(data) + bytes; };
    own.output = further(own.output, first * own.output_stride * sizeof(Pack));  // a null tensor has stride 0
    own.fp8 += first * own.fp8_stride * sizeof(Pack) / 2;
    own.scales = further(own.scales, first * own.scale_row_stride * (own.power_of_two ? 1 : sizeof(float)));
    return own;
  }
};

inline NormedRowShape shape_of(const NormWork& work) {
  NormedRowShape shape{};
  if (work.output != nullptr) shape.normed = work.row_packs;
  if (work.scaling == RowScaling::none) return shape;
  shape.cast = (work.row_packs + 1) / 2;
  constexpr std::uint32_t columns = 128 * 2 / sizeof(Pack);  // packs that share a scale
  if (work.scaling == RowScaling::per_token) shape.groups = 1;
  if (work.scaling == RowScaling::per_group) shape.groups = (work.row_packs + columns - 1) / columns;
  const std::uint32_t in_pack = work.power_of_two ? sizeof(Pack) : sizeof(Pack) / sizeof(float);
  shape.scales = (shape.groups + in_pack - 1) / in_pack;
  return shape;
}

constexpr int most_threads_normed(bool flows) {
  return flows ? 512 : static_cast<int>(kMostRowPacksHeld / kHeldWithoutChunks);
}

}  // namespace weft::detail
