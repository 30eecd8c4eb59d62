// Rows that a warp of a ring's combine adds up: their addresses, and their pieces on the way through the warp's stage.
#pragma once

#include <cstdint>

#include "ops/moe/moe_routing.hpp"
#include "ops/moe/ring_rows.hpp"

namespace weft::detail {

// The addresses of a unit's rows, dealt to the lanes. A token has no more rows than experts: those of this rank's
// experts, and one of each other rank that has an expert of it.
template <Team T>
struct RowSources {
  LaneArray<T, kMaxTopK> low, high;  // halves of addresses
  std::uint32_t count;

  // `row(j)`: the address of the row that is element j of this lane (LaneArray::each).
  template <class Row>
  static WEFT_FN RowSources of(std::uint32_t lane, std::uint32_t count, Row row) {
    RowSources sources{};
    sources.count = count;
    sources.low.each(lane, count, [&](std::uint32_t, std::uint32_t& low, std::uint32_t j) {
      const auto address = reinterpret_cast<std::uint64_t>(row(j));
      low = static_cast<std::uint32_t>(address);
      sources.high.own[j] = static_cast<std::uint32_t>(address >> 32);
    });
    return sources;
  }
  WEFT_FN void append(std::uint32_t lane, const Pack* row) {
    const auto address = reinterpret_cast<std::uint64_t>(row);
    low.add(lane, count, static_cast<std::uint32_t>(address));
    high.add(lane, count, static_cast<std::uint32_t>(address >> 32));
    ++count;
  }
  // By all lanes.
  WEFT_FN const Pack* get(T& team, std::uint32_t k) const {
    return reinterpret_cast<const Pack*>(low.get(team, k) | std::uint64_t{high.get(team, k)} << 32);
  }
};

// Pieces of several rows on their way through a warp's stage: the first piece of each row, then the second ones, and
// so on. A place takes a piece. A lane has the packs lane, lane + kLanes, … of it.
template <StagedTeam T>
struct RowPieces {
  static constexpr std::uint32_t kLanePacks = items_of_piece<T>(1);
  static constexpr std::uint32_t kPacks = kLanePacks * T::kLanes;
  static_assert(kPacks * sizeof(Pack) <= T::kStageBytes);

  T& team;
  std::uint32_t row_packs;
  RowSources<T> rows;
  std::uint32_t k = 0, pack = 0, asking = 0, taking = 0, asked = 0;

  // Asks for pieces in front of the first take(), until `most` have been asked for or the stage is full. By all lanes,
  // as all here.
  WEFT_FN void begin(std::uint32_t most) {
    for (; asked < most && asked < T::kStagePlaces; ++asked) ask();
  }
  WEFT_FN void ask() {
    if (rows.count == 0 || pack >= row_packs) return;
    const std::uint32_t left = row_packs - pack;
    team.load_bulk(asking, rows.get(team, k) + pack, (left < kPacks ? left : kPacks) * sizeof(Pack));
    asking = asking + 1 < T::kStagePlaces ? asking + 1 : 0;
    if (++k < rows.count) return;
    k = 0;
    pack += kPacks;
  }
  // Calls `take(j, pack)` for the lane's packs of the next piece, and asks for another.
  template <class Take>
  WEFT_FN void take(std::uint32_t lane, Take take) {
    team.await_load(taking);
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kLanePacks; ++j) take(j, team.template staged<Pack>(taking, lane + j * T::kLanes));
    team.sync_lanes();
    taking = taking + 1 < T::kStagePlaces ? taking + 1 : 0;
    ask();
  }
};

}  // namespace weft::detail
