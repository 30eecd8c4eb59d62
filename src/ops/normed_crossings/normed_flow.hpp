// Crossings with a norm whose shards are too large for a slot: chunks flow (ops/crossings/flow_crossing.hpp), and rows
// are normed between the hops.
//
// Sums are added to the residual as their chunks come, and stored as the new residual. Blocks that have sent or summed
// their share norm rows: each takes some chunks of the second hop, and norms the rows that begin there, once all of
// their sums are stored. It tells its own rank when it has. A chunk goes on when this has been told of the chunk, and
// of the one in which the row across its beginning begins.
//
// A rank alone in its group has nothing to sum: its rows are normed as they are, each chunk's by the block that sends
// it.
#pragma once

#include <cstdint>

#include "ops/crossings/flow_crossing.hpp"
#include "ops/norm/rms_norm.hpp"
#include "ops/normed_crossings/normed_crossing_work.hpp"
#include "protocol/in_parts.hpp"

namespace weft::detail {

template <DataType type, bool casts, bool gamma_f32 = false>
struct NormStage {
  using Work = NormedCrossingWork;
  using Norm = RmsNorm<Reduction<type, Ops::sum>, casts, gamma_f32>;
  using Packs = typename Norm::Packs;
  static constexpr bool kMakes = true;

  static WEFT_FN const CrossingWork& shards(const Work& work) { return work.shards; }
  static WEFT_FN std::uint64_t packs_summed(const Work& work, std::uint64_t rows) { return rows * work.norm.row_packs; }
  static WEFT_FN std::uint64_t packs_shared(const Work& work, std::uint64_t rows) { return rows * work.shape.packs(); }

  // Adds the residual to the sums, which become the new residual.
  struct Sums {
    Rows<true> residual, result;
    bool has_residual;

    WEFT_FN void put(std::uint64_t pack, const Pack& sum) const {
      result.put(pack, has_residual ? Norm::added(sum, residual.get(pack)) : sum);
    }
  };
  template <class Crossing>
  static WEFT_FN Sums sums(const Crossing& crossing) {
    const NormWork& norm = crossing.work.norm;
    const std::uint64_t rows = crossing.table.rows_of(crossing.s.rank());
    const auto rows_at = [&](const void* data, std::uint64_t stride) {
      return Rows<true>(data, rows, std::uint64_t{norm.row_packs} * sizeof(Pack), stride * sizeof(Pack));
    };
    return {rows_at(norm.residual, norm.residual_stride), rows_at(norm.residual_output, norm.residual_output_stride),
            norm.residual != nullptr};
  }
  template <class Crossing>
  static WEFT_FN NormedStream<casts> shared(const Crossing& crossing, std::uint32_t owner) {
    return crossing.work.template stream_of<casts>(crossing.table, owner);
  }

  // Whether no other rank has a part of this rank's rows. Then they are normed as they are.
  template <class Crossing>
  static WEFT_FN bool is_alone(const Crossing& crossing) {
    return crossing.first_circle().size == 1;
  }
  // Norms the rows that begin in chunks `chunk` to `chunk` + `chunks` − 1. Each part of the block has rows of its own.
  template <Team T, class Crossing>
  static WEFT_FN bool make(T& team, const Crossing& crossing, std::uint64_t chunk, std::uint64_t chunks) {
    NormWork norm = crossing.work.norm_at(crossing.shards.partition.output_row(crossing.table, crossing.s.rank()));
    const bool alone = is_alone(crossing);
    if (!alone) norm.residual = nullptr, norm.residual_stride = 0;  // is in the sums
    const std::uint64_t packs = crossing.work.shape.packs(), chunk_packs = crossing.sharing.chunk_packs();
    const std::uint64_t rows = crossing.table.rows_of(crossing.s.rank());
    const auto first_in = [&](std::uint64_t which) {
      const std::uint64_t row = (which * chunk_packs + packs - 1) / packs;
      return static_cast<std::uint32_t>(row < rows ? row : rows);
    };
    const std::uint32_t first = first_in(chunk), end = first_in(chunk + chunks);
    bool good = alone || await_sums(team, crossing, first, end);
    good = good && in_parts(team, end - first, [&](auto& part, std::uint32_t number, std::uint32_t parts) {
             return Norm::with_more_width(part, norm, [&]<std::uint32_t held>() {
               const auto weights = Norm::weights(part, norm, 0);
               std::uint32_t uses = 0;
               for (std::uint32_t row = first + number; row < end; row += parts) {
                 if (!norm_row<held>(part, crossing, norm, row, weights, uses)) return false;
               }
               return true;
             });
           });
    team.sync();  // every thread's rows are stored
    for (std::uint64_t k = 0; good && team.thread_rank() == 0 && k < chunks; ++k)
      good = crossing.sharing.announce_own(team, chunk + k);
    return team.all(good);
  }

  // By all threads of a block: waits until a chunk's rows are normed.
  template <Team T, class Crossing>
  static WEFT_FN bool await_shared(T& team, const Crossing& crossing, std::uint64_t chunk) {
    const std::uint64_t packs = crossing.work.shape.packs(), begin = chunk * crossing.sharing.chunk_packs();
    const std::uint64_t row_begins_in = begin / packs * packs / crossing.sharing.chunk_packs();
    return team.thread_rank() != 0 ||
           (crossing.sharing.await_own(team, row_begins_in) && crossing.sharing.await_own(team, chunk));
  }

 private:
  // From its sums, or, if no other rank has a part of them, from this rank's rows.
  template <std::uint32_t held, Team T, class Crossing>
  static WEFT_FN bool norm_row(T& team, const Crossing& crossing, const NormWork& norm, std::uint32_t row,
                               const typename Norm::Weights& weights, std::uint32_t& uses) {
    const bool alone = is_alone(crossing);
    const auto input = [&] {
      return crossing.work.row_of_input(crossing.shards.partition.input_row(crossing.table, crossing.s.rank()) + row);
    };
    const Packs from =
        alone ? Packs(input(), 0)
              : Packs(static_cast<const Pack*>(norm.residual_output) + row * norm.residual_output_stride, 0);
    const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
      constexpr std::uint32_t some = sizeof(sums) / sizeof(Pack);
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < some; ++k) {
        if (k != 0 && i + k * team.size() >= norm.row_packs) break;
        sums[k] = from.load(i + k * team.size());
        if (alone && norm.residual == nullptr) sums[k] = Norm::rounded(sums[k]);
      }
      return true;
    };
    return Norm::template finish<held>(team, norm, row, weights, uses, take);
  }
  // Waits until the sums of these rows are stored.
  template <Team T, class Crossing>
  static WEFT_FN bool await_sums(T& team, const Crossing& crossing, std::uint64_t first, std::uint64_t end) {
    const std::uint64_t row = crossing.work.norm.row_packs, chunk_packs = crossing.summing.chunk_packs();
    const std::uint64_t last = (end * row + chunk_packs - 1) / chunk_packs;
    bool good = true;
    for (std::uint64_t chunk = first * row / chunk_packs + team.thread_rank(); good && first < end && chunk < last;
         chunk += team.size())
      good = crossing.summing.await_own(team, chunk);
    return team.all(good);
  }
};

}  // namespace weft::detail
