// Crossings with a norm whose shards are too large for a slot: chunks flow (ops/crossings/flow_crossing.hpp), and the
// block that sums a chunk norms its rows.
//
// Chunks hold whole rows, the same ones in both hops. A row longer than a slot has several chunks, its pieces, which
// one block sums and norms. A row of its own for each chunk takes longer: announcements and credits are releases, which
// wait for all stores before them (docs/notes/0052).
#pragma once

#include <cstdint>

#include "ops/crossings/flow_crossing.hpp"
#include "ops/norm/norm_in_batches.hpp"
#include "ops/normed_crossings/normed_crossing_work.hpp"

namespace weft::detail {

template <DataType type, bool casts, bool gamma_f32 = false>
struct NormStage {
  using Work = NormedCrossingWork;
  using Norm = NormInBatches<Reduction<type, Ops::sum>, casts, gamma_f32>;
  using Packs = typename Norm::Packs;
  static constexpr bool kHasPieces = true;

  static WEFT_FN const CrossingWork& shards(const Work& work) { return work.shards; }
  // The cut of a shard's rows: so many rows in a chunk, or so many chunks, its pieces, of a row.
  struct Cut {
    std::uint32_t row_packs, rows, pieces;
    std::uint64_t slot_packs;

    WEFT_FN std::uint64_t chunks_of(std::uint64_t of) const { return (of + rows - 1) / rows * pieces; }
    WEFT_FN std::uint64_t first_pack(std::uint64_t chunk) const {
      return chunk / pieces * rows * row_packs + chunk % pieces * slot_packs;
    }
    WEFT_FN std::uint32_t packs_in(std::uint64_t chunk, std::uint64_t of) const {
      const std::uint64_t first = first_pack(chunk), all = of * row_packs, left = all > first ? all - first : 0;
      // The rows of one hop may have fewer pieces than those of the other.
      const std::uint64_t begin = chunk % pieces * slot_packs, end = std::uint64_t{rows} * row_packs;
      const std::uint64_t unit = end > begin ? end - begin : 0, most = unit < slot_packs ? unit : slot_packs;
      return static_cast<std::uint32_t>(left < most ? left : most);
    }
  };
  template <class Crossing>
  static WEFT_FN Cut cut_of_sums(const Crossing& crossing) {
    return cut_of(crossing, crossing.work.norm.row_packs);
  }
  template <class Crossing>
  static WEFT_FN Cut cut_of_shared(const Crossing& crossing) {
    return cut_of(crossing, crossing.work.shape.packs());
  }
  template <class Crossing>
  static WEFT_FN NormedStream<casts> shared(const Crossing& crossing, std::uint32_t owner) {
    return crossing.work.template stream_of<casts>(crossing.table, owner);
  }

  // Makes a chunk of whole rows, as PlainStage::make. Sums and residual become the new residual, and its normed row
  // goes on. Cast rows go on from the outputs.
  template <Team T, class Crossing, class Sum, class Push>
  static WEFT_FN void make(T& team, const Crossing& crossing, const Cut& cut, std::uint64_t chunk, Sum sum, Push push) {
    const NormWork norm = own_norm(crossing);
    const NormedRowShape& shape = crossing.work.shape;
    const auto rows = static_cast<std::uint32_t>(crossing.own_rows()),
               first = static_cast<std::uint32_t>(chunk) * cut.rows;
    std::uint32_t uses = 0;
    for (std::uint32_t row = 0; row < cut.rows && first + row < rows; ++row) {
      const std::uint32_t begin = row * norm.row_packs, to = row * shape.packs();
      const Packs own = input_of(crossing, first + row);
      Norm::finish(
          team, norm, first + row, uses,
          [&](std::uint32_t i, std::uint32_t step, auto& sums) {
            sum([&](std::uint32_t k) { return own.load(i + k); }, begin + i, step, norm.row_packs - i, sums);
          },
          [&](std::uint32_t i, const Pack& pack) { push(to + i, pack); });
      if constexpr (casts) {
        if (crossing.second_circle().size == 1 || shape.cast == 0) continue;
        team.sync();  // the cast row is stored
        const NormedStream<casts> stream = shared(crossing, crossing.s.rank());
        for (std::uint32_t i = shape.normed + team.thread_rank(); i < shape.packs(); i += team.size())
          push(to + i, stream.rows.get(stream.first + first + row, i));
      }
    }
  }

  // Stores the sums of a piece, with the residual, as the new residual.
  template <Team T, class Crossing, class Sum>
  static WEFT_FN void put_piece(T& team, const Crossing& crossing, const Cut& cut, std::uint64_t chunk, Sum sum) {
    const NormWork& norm = crossing.work.norm;
    const std::uint64_t row = chunk / cut.pieces, first = chunk % cut.pieces * cut.slot_packs;
    const std::uint32_t packs = cut.packs_in(chunk, crossing.own_rows());
    const Packs own = input_of(crossing, row);
    const Packs residual(static_cast<const Pack*>(norm.residual) + row * norm.residual_stride + first, 0);
    const Packs result(static_cast<Pack*>(norm.residual_output) + row * norm.residual_output_stride + first, 0);
    for (std::uint32_t i = team.thread_rank(); i < packs; i += team.size()) {
      Pack made[1];
      sum([&](std::uint32_t k) { return own.load(first + i + k); }, i, team.size(), packs - i, made);
      result.store(i, norm.residual != nullptr ? Norm::added(made[0], residual.load(i)) : made[0]);
    }
  }
  // Norms a long row, all of whose pieces are summed.
  template <Team T, class Crossing>
  static WEFT_FN void make_unit(T& team, const Crossing& crossing, std::uint64_t row) {
    NormWork norm = own_norm(crossing);
    norm.residual = nullptr, norm.residual_stride = 0;  // is in the sums
    const Packs sums(static_cast<const Pack*>(norm.residual_output) + row * norm.residual_output_stride, 0);
    std::uint32_t uses = 0;
    Norm::finish(
        team, norm, static_cast<std::uint32_t>(row), uses,
        [&](std::uint32_t i, std::uint32_t step, auto& some) {
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < sizeof(some) / sizeof(Pack); ++k) {
            if (k * step < norm.row_packs - i) some[k] = sums.load(i + k * step);
          }
        },
        [](std::uint32_t, const Pack&) {});
  }

 private:
  template <class Crossing>
  static WEFT_FN Cut cut_of(const Crossing& crossing, std::uint32_t row_packs) {
    const std::uint64_t slot = crossing.summing.chunk_packs();
    const std::uint32_t most = crossing.work.most_row_packs();
    const auto rows = static_cast<std::uint32_t>(slot / most);
    if (rows != 0) return {row_packs, rows, 1, slot};
    return {row_packs, 1, static_cast<std::uint32_t>((most + slot - 1) / slot), slot};
  }
  // This rank's part of a row of its shard.
  template <class Crossing>
  static WEFT_FN Packs input_of(const Crossing& crossing, std::uint64_t row) {
    const std::uint64_t first = crossing.shards.partition.input_row(crossing.table, crossing.s.rank());
    return Packs(crossing.work.row_of_input(first + row), 0);
  }
  template <class Crossing>
  static WEFT_FN NormWork own_norm(const Crossing& crossing) {
    return crossing.work.norm_at(crossing.shards.partition.output_row(crossing.table, crossing.s.rank()));
  }
};

}  // namespace weft::detail
