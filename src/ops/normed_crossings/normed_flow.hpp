// Crossings with a norm whose shards are too large for a slot: chunks flow (ops/crossings/flow_crossing.hpp), and rows
// are normed between the hops.
//
// Sums are added to the residual as their chunks come, and stored as the new residual. Then the blocks that have summed
// norm rows: the block of a second hop's chunk norms the rows that begin in it, once all of their sums are stored. It
// tells its own rank when it has. A chunk goes on when this has been told of the chunk, and of the one in which the row
// across its beginning begins.
#pragma once

#include <cstdint>

#include "ops/crossings/flow_crossing.hpp"
#include "ops/norm/rms_norm.hpp"
#include "ops/normed_crossings/normed_crossing_work.hpp"

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

  // Norms the rows that begin in this block's chunks.
  template <Team T, class Crossing>
  static WEFT_FN bool make(T& team, const Crossing& crossing, const Flow::Role& role) {
    const Session& s = crossing.s;
    const CrossingPartition& partition = crossing.shards.partition;
    NormWork norm = crossing.work.norm_at(partition.output_row(crossing.table, s.rank()));
    norm.residual = nullptr, norm.residual_stride = 0;  // is in the sums
    const std::uint32_t packs = crossing.work.shape.packs();
    const std::uint64_t rows = crossing.table.rows_of(s.rank());
    const std::uint64_t chunks = crossing.sharing.chunks_of(rows * packs), chunk_packs = crossing.sharing.chunk_packs();
    const auto first_in = [&](std::uint64_t chunk) {
      const std::uint64_t row = (chunk * chunk_packs + packs - 1) / packs;
      return static_cast<std::uint32_t>(row < rows ? row : rows);
    };
    return Norm::with_width(team, norm, [&]<std::uint32_t held>() {
      const auto weights = Norm::weights(team, norm, 0);
      std::uint32_t uses = 0;
      for (std::uint64_t chunk = role.block; chunk < chunks; chunk += role.blocks) {
        const std::uint32_t first = first_in(chunk), end = first_in(chunk + 1);
        if (!await_sums(team, crossing, first, end)) return false;
        for (std::uint32_t row = first; row < end; ++row) {
          if (!norm_row<held>(team, norm, row, weights, uses)) return false;
        }
        team.sync();  // every thread's rows are stored
        if (!team.all(team.thread_rank() != 0 || crossing.sharing.announce_own(team, chunk))) return false;
      }
      return true;
    });
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
  template <std::uint32_t held, Team T>
  static WEFT_FN bool norm_row(T& team, const NormWork& norm, std::uint32_t row, const typename Norm::Weights& weights,
                               std::uint32_t& uses) {
    const Packs sums(static_cast<const Pack*>(norm.residual_output) + row * norm.residual_output_stride, 0);
    const auto take = [&](std::uint32_t, std::uint32_t i, Pack(&sum)[1]) {
      sum[0] = sums.load(i);
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
