// Gathers, scatters and similar calls with known answers, the same for CPU ranks and GPU ranks. A rank's memory is
// known byte for byte before and after a call: inputs, gaps, padding and canaries are compared like results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "oracle/moves.hpp"
#include "support/bytes.hpp"
#include "support/cases.hpp"
#include "weft/collectives.hpp"

namespace weft::test {

enum class Kind {
  all_gather,
  all_to_all,
  broadcast,
  reduce_scatter,
  all_gather_v,
  reduce_scatter_v,
  reduce,
  gather,
  scatter,
  gather_sums,
  scatter_sums,
  messages
};
constexpr bool crosses(Kind kind) {
  return kind == Kind::gather_sums || kind == Kind::scatter_sums;
}
constexpr bool reduces(Kind kind) {
  return kind == Kind::reduce_scatter || kind == Kind::reduce_scatter_v || kind == Kind::reduce || crosses(kind);
}
// The others take their rows side by side.
constexpr bool has_strides(Kind kind) {
  return kind != Kind::reduce && kind != Kind::gather && kind != Kind::scatter;
}
// In place, the output is a part of the input, and not the other way round.
constexpr bool lies_in_input(Kind kind) {
  return kind == Kind::reduce_scatter || kind == Kind::reduce_scatter_v || kind == Kind::scatter;
}

// The place of a ragged move's counts.
enum class CountsAt { device, host, host_of_odd_ranks };

// A message between two ranks of a group. Both find it by its place among the letters of their pair.
struct Letter {
  int from = 0, to = 0;
  std::size_t bytes = 0;
  std::size_t send_shift = 0, receive_shift = 0;  // bytes from an aligned address
  std::uint32_t seed = 0;                         // of its content, beside the move's
  std::uint32_t tag = 0;
};

struct Move {
  Kind kind = Kind::all_gather;
  std::size_t rows = 1;                   // of one message; for ragged moves: see counts
  std::vector<std::size_t> widths = {1};  // elements of a row, for each tensor
  DataType type = DataType::bf16;         // for reductions
  ReduceOp op = ReduceOp::sum;
  std::size_t unit = 0;  // for copies: bytes of an element; 0: the type's
  Fill fill = Fill::bits;
  // Elements between rows, and from an aligned address. If not 0, every further tensor has one more.
  std::size_t input_gap = 0, output_gap = 0;
  std::size_t input_shift = 0, output_shift = 0;
  bool in_place = false;
  int root = 0;
  // For ragged moves: the counts, the ranks' use of them, and spare room.
  std::vector<std::int32_t> counts = {};
  Sharding sharding = Sharding::none;
  Padding padding = Padding::none;
  std::size_t slot_rows = 0;
  std::vector<std::int32_t> slots = {};  // of each rank, if slots are given
  std::size_t spare_rows = 0;
  CountsAt counts_at = CountsAt::device;
  int group_ranks = 1;  // of crossings, and of gathers of the same rows; without a `sharding`
  // For messages: a rank sends and receives those that are its own, in one call or each in its own. Ranks may order
  // letters of different pairs and directions as they like. A rank without letters makes no call.
  std::vector<Letter> letters = {};
  bool one_by_one = false;
  std::uint32_t seed = 0;
  std::uint32_t tag = 0;
  Launch launch = {};

  bool has_replicas() const { return kind == Kind::all_gather_v && group_ranks > 1; }
  std::size_t element_bytes() const { return unit != 0 ? unit : size_of(type); }
  std::size_t row_bytes(std::size_t tensor) const { return widths[tensor] * element_bytes(); }
  // The bytes of a gap or a shift.
  std::size_t apart(std::size_t elements, std::size_t tensor) const {
    return elements == 0 ? 0 : (elements + tensor) * element_bytes();
  }
  std::size_t gap(std::size_t elements, std::size_t tensor) const {
    return has_strides(kind) ? apart(elements, tensor) : 0;
  }
};
std::string describe(const Move& move);

inline constexpr Kind kEqual[] = {Kind::all_gather, Kind::all_to_all, Kind::broadcast, Kind::reduce_scatter,
                                  Kind::reduce,     Kind::gather,     Kind::scatter};
inline constexpr Kind kStrided[] = {Kind::all_gather, Kind::all_to_all, Kind::broadcast, Kind::reduce_scatter};
inline constexpr Kind kCopies[] = {Kind::all_gather, Kind::all_to_all, Kind::broadcast};

using oracle::Place;
std::vector<Place> places_of(const Move& move, int ranks);

// Memory of one rank, before and after the call.
struct Memory {
  Bytes before, after;
  std::size_t begin;  // of the tensor, behind canaries; the memory is aligned to 256 bytes
};
// Canaries, and a tensor in them.
Memory memory_of(std::size_t bytes, std::size_t shift);

struct RankMove {
  Move move;                   // in place only where this rank has both tensors
  std::vector<Memory> memory;  // input and output of each tensor in turn; in place they are the same. Or letters
  Memory counts;               // followed by given slots
  std::vector<Place> places;
  std::size_t input(std::size_t tensor) const { return move.in_place ? tensor : 2 * tensor; }
  std::size_t output(std::size_t tensor) const { return move.in_place ? tensor : 2 * tensor + 1; }
};
RankMove prepare(const Move& move, int ranks, int rank);

// Makes the call. `address(memory)` returns that memory's address, aligned to 256 bytes.
void issue(const Group& group, const RankMove& prepared, const std::function<std::byte*(const Memory&)>& address,
           Stream stream);

// Throws the first wrong byte. If `got` is longer, it ends in canaries.
void expect_after(const RankMove& prepared, const Memory& memory, std::span<const std::byte> got);

// The pieces of a rank's memory that hold outputs, and their size in symmetric memory, one after the other.
constexpr bool may_be_symmetric(Kind kind) {
  return kind == Kind::all_gather_v || std::ranges::find(kCopies, kind) != std::end(kCopies);
}
inline bool is_output(const RankMove& move, std::size_t memory) {
  return move.move.in_place || memory % 2 == 1;
}
std::size_t output_bytes(const RankMove& move);

// A rank's memory on the host. Made once for the largest move; filled, used and checked any number of times.
class HostMove {
 public:
  // `outputs`: their place; null: memory of its own.
  explicit HostMove(const RankMove& largest, std::byte* outputs = nullptr);
  // Writes the memory of another move of the same kind, which must not need more.
  void fill(const RankMove& move);
  void fill() { fill(largest_); }
  // Makes the call that was prepared first, with its pointers and capacities.
  void call(const Group& group);
  void check(const RankMove& move);
  void check() { check(largest_); }

 private:
  std::span<std::byte> storage(std::size_t index) { return storage_[index]; }
  std::span<std::byte> storage_of(const Memory& memory);
  const RankMove& largest_;
  std::vector<AlignedBytes> own_;
  std::vector<std::span<std::byte>> storage_;  // of each piece of memory, and of counts
};

// Makes the call on a CPU rank, and checks its outputs and everything around them.
void run_on_cpu_rank(const Group& group, const Move& move, std::byte* outputs = nullptr);

// Makes each move in turn on a world of CPU ranks.
void expect_right(int ranks, const Config& config, const std::vector<Move>& moves);

}  // namespace weft::test
