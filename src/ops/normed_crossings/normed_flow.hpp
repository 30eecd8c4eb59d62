// Crossings with a norm whose shards are too large for a slot: chunks flow (ops/crossings/flow_crossing.hpp), and rows
// are normed between the hops.
//
// Chunks hold whole rows, the same ones in both hops. A row longer than a slot has several chunks. Either is a unit.
// The block that sums a unit stores the sums as the new residual, norms its rows, and tells its own rank. Then the
// rank's senders send them on. So the second hop begins while sums still come.
//
// A rank alone in its group has nothing to sum: the block that sends a unit norms it first.
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
  // Norms take longer than copies, so three quarters of the blocks make them: those that receive, or, if nothing is
  // summed, those that send.
  template <Team T, class Crossing>
  static WEFT_FN Flow::Role role_of(T& team, const Crossing& crossing) {
    const std::uint32_t blocks = team.blocks() - 1, fewer = (blocks + 3) / 4;
    return Flow::role_of(team, is_alone(crossing) && blocks > 1 ? blocks - fewer : fewer);
  }
  // How a shard's rows are cut: so many rows in a chunk, or so many chunks, its pieces, of a row.
  struct Cut {
    std::uint32_t row_packs, rows, pieces;
    std::uint64_t slot_packs;

    WEFT_FN std::uint64_t chunks_of(std::uint64_t of) const { return (of + rows - 1) / rows * pieces; }
    WEFT_FN std::uint64_t first_pack(std::uint64_t chunk) const {
      return chunk / pieces * rows * row_packs + chunk % pieces * slot_packs;
    }
    WEFT_FN std::uint32_t packs_in(std::uint64_t chunk, std::uint64_t of) const {
      const std::uint64_t first = first_pack(chunk), all = of * row_packs, left = all > first ? all - first : 0;
      const std::uint64_t unit = std::uint64_t{rows} * row_packs - chunk % pieces * slot_packs;
      const std::uint64_t most = unit < slot_packs ? unit : slot_packs;
      return static_cast<std::uint32_t>(left < most ? left : most);
    }
  };
  template <class Crossing>
  static WEFT_FN Cut cut_of_sums(const Crossing& crossing) {
    return cut_of(crossing, crossing.work.norm.row_packs, crossing.work.shape.packs());
  }
  template <class Crossing>
  static WEFT_FN Cut cut_of_shared(const Crossing& crossing) {
    return cut_of(crossing, crossing.work.shape.packs(), crossing.work.norm.row_packs);
  }

  // Sums and residual become the new residual. Rows that lie in their chunk whole are normed as they are summed. Each
  // part of the block has rows of its own.
  template <Team T, class Crossing, class Sum>
  static WEFT_FN void put_sums(T& team, const Crossing& crossing, const Cut& cut, std::uint64_t chunk, Sum sum) {
    if (cut.pieces != 1) return put_pieces(team, crossing, cut, chunk, sum);
    const NormWork norm = own_norm(crossing);
    each_row(
        team, crossing, norm, chunk,
        [&]<std::uint32_t held>(auto& part, std::uint32_t first, std::uint32_t row, const auto& weights, auto& uses) {
          const std::uint32_t begin = (row - first) * norm.row_packs;
          const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
            each_of(part, norm, i, sums, [&](std::uint32_t at) { return sum(part, begin + at); });
            return true;
          };
          return Norm::template finish<held>(part, norm, row, weights, uses, take);
        });
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
  // Behind the sums of a chunk: its rows go on, or a long row, if they were its last ones.
  template <Team T, class Crossing>
  static WEFT_FN bool make_of_sums(T& team, const Crossing& crossing, std::uint64_t chunk) {
    const Cut cut = cut_of_sums(crossing);
    if (cut.pieces == 1) return tell(team, crossing, chunk);
    return chunk % cut.pieces != cut.pieces - 1 || make(team, crossing, chunk / cut.pieces);
  }
  // Before a chunk is sent on: norms its unit, if the chunk is the first one of a rank that is alone.
  template <Team T, class Crossing>
  static WEFT_FN bool make_alone(T& team, const Crossing& crossing, std::uint64_t chunk) {
    const Cut cut = cut_of_shared(crossing);
    return !is_alone(crossing) || chunk % cut.pieces != 0 || make(team, crossing, chunk / cut.pieces);
  }
  // By all threads of a block: waits until a chunk's rows are normed.
  template <Team T, class Crossing>
  static WEFT_FN bool await_shared(T& team, const Crossing& crossing, std::uint64_t chunk) {
    return team.thread_rank() != 0 || crossing.sharing.await_own(team, chunk);
  }

 private:
  template <class Crossing>
  static WEFT_FN Cut cut_of(const Crossing& crossing, std::uint32_t row_packs, std::uint32_t in_the_other_hop) {
    const std::uint64_t slot = crossing.summing.chunk_packs();
    const std::uint32_t most = row_packs > in_the_other_hop ? row_packs : in_the_other_hop;
    const auto rows = static_cast<std::uint32_t>(slot / most);
    if (rows != 0) return {row_packs, rows, 1, slot};
    return {row_packs, 1, static_cast<std::uint32_t>((row_packs + slot - 1) / slot), slot};
  }
  template <class Crossing>
  static WEFT_FN NormWork own_norm(const Crossing& crossing) {
    return crossing.work.norm_at(crossing.shards.partition.output_row(crossing.table, crossing.s.rank()));
  }

  template <Team T, class Crossing, class Sum>
  static WEFT_FN void put_pieces(T& team, const Crossing& crossing, const Cut& cut, std::uint64_t chunk, Sum sum) {
    const NormWork& norm = crossing.work.norm;
    const std::uint64_t row = chunk / cut.pieces, first = chunk % cut.pieces * cut.slot_packs;
    const std::uint32_t packs = cut.packs_in(chunk, crossing.table.rows_of(crossing.s.rank()));
    const Packs residual(static_cast<const Pack*>(norm.residual) + row * norm.residual_stride + first, 0);
    const Packs result(static_cast<Pack*>(norm.residual_output) + row * norm.residual_output_stride + first, 0);
    for (std::uint32_t i = team.thread_rank(); i < packs; i += team.size()) {
      const Pack own = sum(team, i);
      result.store(i, norm.residual != nullptr ? Norm::added(own, residual.load(i)) : own);
    }
  }

  // Norms a long row whose pieces are summed, or the unit of a rank that is alone, from its input.
  template <Team T, class Crossing>
  static WEFT_FN bool make(T& team, const Crossing& crossing, std::uint64_t unit) {
    const bool alone = is_alone(crossing);
    NormWork norm = own_norm(crossing);
    if (!alone) norm.residual = nullptr, norm.residual_stride = 0;  // is in the sums
    each_row(team, crossing, norm, unit,
             [&]<std::uint32_t held>(auto& part, std::uint32_t, std::uint32_t row, const auto& weights, auto& uses) {
               const auto input = [&] {
                 const CrossingWork& shards = crossing.shards;
                 return crossing.work.row_of_input(shards.partition.input_row(crossing.table, crossing.s.rank()) + row);
               };
               const Packs from =
                   alone ? Packs(input(), 0)
                         : Packs(static_cast<const Pack*>(norm.residual_output) + row * norm.residual_output_stride, 0);
               const bool rounds = alone && norm.residual == nullptr;
               const auto take = [&](std::uint32_t, std::uint32_t i, auto& sums) {
                 each_of(part, norm, i, sums, [&](std::uint32_t at) {
                   const Pack pack = from.load(at);
                   return rounds ? Norm::rounded(pack) : pack;
                 });
                 return true;
               };
               return Norm::template finish<held>(part, norm, row, weights, uses, take);
             });
    team.sync();  // every thread's rows are stored
    return tell(team, crossing, unit);
  }
  // Tells this rank that a unit's chunks can go on. Behind the block's barrier.
  template <Team T, class Crossing>
  static WEFT_FN bool tell(T& team, const Crossing& crossing, std::uint64_t unit) {
    const Cut shares = cut_of_shared(crossing);
    bool good = true;
    if (unit * shares.rows >= crossing.table.rows_of(crossing.s.rank())) return true;
    for (std::uint32_t k = 0; good && team.thread_rank() == 0 && k < shares.pieces; ++k)
      good = crossing.sharing.announce_own(team, unit * shares.pieces + k);
    return team.all(good);
  }

  // Calls `serve<held>(part, first, row, weights, uses)` for each of a unit's rows, of which the first one is `first`.
  template <Team T, class Crossing, class Serve>
  static WEFT_FN void each_row(T& team, const Crossing& crossing, const NormWork& norm, std::uint64_t unit,
                               Serve serve) {
    const Cut cut = cut_of_sums(crossing);
    const auto rows = static_cast<std::uint32_t>(crossing.table.rows_of(crossing.s.rank()));
    const auto first = static_cast<std::uint32_t>(unit * cut.rows);
    if (first >= rows) return;
    const std::uint32_t end = rows - first < cut.rows ? rows : first + cut.rows;
    in_parts(team, end - first, [&](auto& part, std::uint32_t number, std::uint32_t parts) {
      return Norm::with_more_width(part, norm, [&]<std::uint32_t held>() {
        const auto weights = Norm::weights(part, norm, 0);
        std::uint32_t uses = 0;
        for (std::uint32_t row = first + number; row < end; row += parts)
          serve.template operator()<held>(part, first, row, weights, uses);
        return true;
      });
    });
  }
  // For the packs i, i + size, … of a row, as far as there are any.
  template <Team T, class Some, class Make>
  static WEFT_FN void each_of(T& team, const NormWork& norm, std::uint32_t i, Some& sums, Make make) {
    constexpr std::uint32_t some = sizeof(sums) / sizeof(Pack);
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < some; ++k) {
      if (k != 0 && i + k * team.size() >= norm.row_packs) break;
      sums[k] = make(i + k * team.size());
    }
  }
};

}  // namespace weft::detail
