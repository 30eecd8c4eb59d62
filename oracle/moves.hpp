// The places of rows: shards, slots, gathers, scatters, rows that are taken, and the table of counts.
#pragma once

#include "oracle/number.hpp"
#include "oracle/reduction.hpp"

namespace weft::oracle {

// The division of m rows among A ranks. none: each rank's number is given. balanced: m div A, and one more in the first
// m mod A ranks. ceil: ⌈m / A⌉, and less or nothing in the last ones.
struct Sharding {
  enum Name : std::uint8_t { none, balanced, ceil };
  template <Enum E>
  constexpr Sharding(E of) : name(of == E::none       ? none
                                  : of == E::balanced ? balanced
                                                      : ceil) {}
  Name name;
};

// Rows of a slot. none: the rank's; aligned: these rounded up to a multiple; max: those of the largest rank. fixed: a
// given number; per_rank: a given number of its own.
struct Padding {
  enum Name : std::uint8_t { none, aligned, max, fixed, per_rank };
  template <Enum E>
  constexpr Padding(E of)
      : name(of == E::none      ? none
             : of == E::aligned ? aligned
             : of == E::max     ? max
             : of == E::fixed   ? fixed
                                : per_rank) {}
  Name name;
};

// Rows begin … begin + size − 1.
struct Rows {
  std::size_t begin, size;
};
// The rows of part `part`, among `rows` rows. none: all of them.
Rows part_of(std::size_t rows, std::size_t parts, std::size_t part, Sharding sharding);

// One rank's rows in the tensor that holds all ranks' rows: their number, and the slot of which they are the first.
struct Place {
  std::size_t rows, begin, slot;
};
// Slots lie behind each other. `slot_rows`: the multiple, or the number of fixed ones; `given`: one for each slot.
std::vector<Place> places_of(std::span<const std::size_t> rows, Padding padding, std::size_t slot_rows = 0,
                             std::span<const std::int32_t> given = {});
// Rows in front of all slots' end.
std::size_t rows_of(std::span<const Place> places);

// Tensors that ranks send, rank by rank: rows side by side, without pads.
using Messages = std::span<const std::span<const std::byte>>;
// All ranks' rows in their slots; pads are zero.
Bytes gathered(std::span<const Place> places, Messages messages, std::size_t row_bytes);
// The parts that `rank` gets, one out of each message.
Bytes exchanged(Messages messages, std::size_t rank);
// The reductions of `rank`'s rows in its slot; pads are zero. Messages have the rows of all ranks.
Bytes scattered(Type type, Op op, std::span<const Place> places, Messages messages, std::size_t rank,
                std::size_t row_bytes);

// Groups of `group_ranks` neighbours share rows. Messages have the rows of their rank's group: their sums go to all
// ranks' slots; pads are zero.
Bytes gathered_sums(Type type, std::span<const Place> places, std::size_t group_ranks, Messages messages,
                    std::size_t row_bytes);
// Messages have the rows of all ranks: the sums of those of the group of `rank`, and zeros for its slots' pads.
Bytes scattered_sums(Type type, std::span<const Place> places, std::size_t group_ranks, Messages messages,
                     std::size_t rank, std::size_t row_bytes);

// The rows of the tensor that take_rows copies: a shard of slot `slot`. `of_slots`: it is the slot that is shared, of
// which the rows are the first.
Rows taken_of(std::span<const Place> places, std::size_t slot, std::size_t shards, std::size_t shard, Sharding sharding,
              bool of_slots);

struct CountRules {
  std::size_t columns, group_ranks;
  Sharding sharding;
  bool split_slots;
  Padding padding;
  std::size_t slot_rows;
};
// The table that all_gather_counts makes of what ranks say ([ranks][columns], column 0 the rows of the rank's group).
// In this order: rows, slots, offsets and the end, the largest, the sum, shards, their slots; bits of each column that
// any rank has set, bits that all have; what they said.
std::vector<std::int32_t> table_of_counts(const CountRules& rules, std::span<const std::int32_t> said);

}  // namespace weft::oracle
