#include "support/moves.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <stdexcept>

#include "support/bytes.hpp"
#include "support/letters.hpp"

namespace weft::test {
namespace {

bool ragged(Kind kind) {
  return kind == Kind::all_gather_v || kind == Kind::reduce_scatter_v || crosses(kind);
}

// The data of `rank` for all ranks together, as a message without gaps. `tensor`: distinguishes tensors of one call.
Bytes data_of(const Move& move, int rank, std::size_t tensor, std::size_t rows) {
  const std::size_t bytes = rows * move.row_bytes(tensor), element = size_of(move.type);
  const Case c{.count = (bytes + element - 1) / element,
               .type = move.type,
               .fill = move.fill,
               .seed = move.seed * 8 + static_cast<std::uint32_t>(tensor)};
  Bytes data = input_of(c, rank);
  data.resize(bytes);
  return data;
}

struct Shape {
  std::size_t row_bytes, stride;
};

class Builder {
 public:
  Builder(const Move& move, int ranks, int rank) : move_(move), ranks_(ranks), rank_(rank) {
    if (!is_root() && !has_strides(move.kind)) move_.in_place = false;
    places_ = places_of(move, ranks);
    whole_rows_ = oracle::rows_of(places_);
  }

  RankMove build() {
    RankMove result{.move = move_, .memory = {}, .counts = {}, .places = places_};
    for (std::size_t tensor = 0; tensor < move_.widths.size(); ++tensor) {
      tensor_ = tensor;
      row_bytes_ = move_.row_bytes(tensor);
      build_tensor(tensor, result);
    }
    std::vector<std::int32_t> numbers = move_.counts;
    numbers.insert(numbers.end(), move_.slots.begin(), move_.slots.end());
    result.counts = memory_of(numbers.size() * 4, 0);
    std::ranges::copy(std::as_bytes(std::span(numbers)),
                      result.counts.before.begin() + static_cast<std::ptrdiff_t>(result.counts.begin));
    result.counts.after = result.counts.before;
    return result;
  }

 private:
  const Place& mine() const { return places_[static_cast<std::size_t>(rank_)]; }
  std::size_t group_ranks() const { return static_cast<std::size_t>(move_.group_ranks); }
  std::span<const Place> group_of(int rank) const {
    return std::span(places_).subspan(static_cast<std::size_t>(rank) / group_ranks() * group_ranks(), group_ranks());
  }
  static std::size_t rows_in(std::span<const Place> places) {
    std::size_t rows = 0;
    for (const Place& place : places) rows += place.rows;
    return rows;
  }
  bool is_root() const { return rank_ == move_.root; }
  std::size_t gap(std::size_t elements) const { return move_.gap(elements, tensor_); }
  std::size_t shift(std::size_t elements) const { return move_.apart(elements, tensor_); }
  Shape input_shape() const {
    return {row_bytes_, row_bytes_ + gap(move_.in_place ? move_.output_gap : move_.input_gap)};
  }
  Shape output_shape() const { return {row_bytes_, row_bytes_ + gap(move_.output_gap)}; }

  // Writes row `row` of a message to row `to` of the memory.
  void put_rows(Bytes& memory, std::size_t begin, Shape shape, std::size_t to, std::span<const std::byte> rows) const {
    if (row_bytes_ == 0) return;
    for (std::size_t row = 0; row * row_bytes_ < rows.size(); ++row) {
      const auto from = rows.subspan(row * row_bytes_, row_bytes_);
      std::copy(from.begin(), from.end(),
                memory.begin() + static_cast<std::ptrdiff_t>(begin + (to + row) * shape.stride));
    }
  }

  // Rows of a rank's input and output, with padding and spare rows.
  std::size_t input_rows() const {
    switch (move_.kind) {
      case Kind::all_gather:
      case Kind::broadcast:
      case Kind::reduce:
      case Kind::gather:
        return move_.rows;
      case Kind::all_to_all:
      case Kind::reduce_scatter:
        return move_.rows * static_cast<std::size_t>(ranks_);
      case Kind::scatter:
        return is_root() ? move_.rows * static_cast<std::size_t>(ranks_) : 0;
      case Kind::all_gather_v:
        return (move_.has_replicas() ? rows_in(group_of(rank_)) : mine().rows) + move_.spare_rows;
      case Kind::reduce_scatter_v:
      case Kind::scatter_sums:
        return whole_rows_ + move_.spare_rows;
      case Kind::gather_sums:
        return rows_in(group_of(rank_)) + move_.spare_rows;
      case Kind::messages:
        break;
    }
    return 0;
  }
  std::size_t output_rows() const {
    switch (move_.kind) {
      case Kind::all_gather:
      case Kind::all_to_all:
        return move_.rows * static_cast<std::size_t>(ranks_);
      case Kind::broadcast:
      case Kind::reduce_scatter:
      case Kind::scatter:
        return move_.rows;
      case Kind::reduce:
        return is_root() ? move_.rows : 0;
      case Kind::gather:
        return is_root() ? move_.rows * static_cast<std::size_t>(ranks_) : 0;
      case Kind::all_gather_v:
      case Kind::gather_sums:
        return whole_rows_ + move_.spare_rows;
      case Kind::reduce_scatter_v:
        return mine().slot + move_.spare_rows;
      case Kind::scatter_sums:
        return oracle::rows_of(group_of(rank_)) - group_of(rank_)[0].begin + move_.spare_rows;
      case Kind::messages:
        break;
    }
    return 0;
  }

  void build_tensor(std::size_t tensor, RankMove& result) {
    Memory input = memory_of(input_rows() * input_shape().stride, shift(move_.input_shift));
    Memory output = memory_of(output_rows() * output_shape().stride, shift(move_.output_shift));
    // In place, the larger of the two contains the other.
    const bool scatters = lies_in_input(move_.kind);
    if (move_.in_place && scatters) output = memory_of(input_rows() * output_shape().stride, shift(move_.output_shift));
    const bool alike = move_.kind == Kind::broadcast || move_.kind == Kind::reduce;
    const std::size_t own_row = alike ? 0 : mine().begin;

    Memory& source = move_.in_place ? output : input;
    const Bytes data = own_data(tensor);
    const std::size_t first = move_.in_place && !scatters ? own_row : 0;
    put_input(source, first, data);
    input.after = input.before;
    output.after = output.before;

    const std::size_t base = move_.in_place && scatters ? own_row : 0;
    put_result(output, base, tensor);
    if (!move_.in_place) result.memory.push_back(std::move(input));
    result.memory.push_back(std::move(output));
  }

  // This rank's input as a message: the rows that it sends, or (scatters) all ranks' rows without padding.
  Bytes own_data(std::size_t tensor) const {
    return move_.has_replicas() ? group_data(tensor, rank_) : rank_data(tensor, rank_);
  }
  // The rows that all ranks of a group have.
  Bytes group_data(std::size_t tensor, int rank) const {
    return data_of(move_, rank / move_.group_ranks * move_.group_ranks, tensor, rows_in(group_of(rank)));
  }
  Bytes rank_data(std::size_t tensor, int rank) const {
    const auto& place = places_[static_cast<std::size_t>(rank)];
    switch (move_.kind) {
      case Kind::all_gather:
      case Kind::broadcast:
      case Kind::reduce:
      case Kind::gather:
        return data_of(move_, rank, tensor, move_.rows);
      case Kind::all_gather_v: {
        if (!move_.has_replicas()) return data_of(move_, rank, tensor, place.rows);
        const std::size_t before = rows_in(group_of(rank).first(static_cast<std::size_t>(rank % move_.group_ranks)));
        const Bytes rows = group_data(tensor, rank);
        const auto own = std::span(rows).subspan(before * row_bytes_, place.rows * row_bytes_);
        return {own.begin(), own.end()};
      }
      case Kind::gather_sums:
        return data_of(move_, rank, tensor, rows_in(group_of(rank)));
      default:
        return data_of(move_, rank, tensor, rows_in(places_));
    }
  }
  void put_input(Memory& memory, std::size_t first, const Bytes& data) const {
    if ((move_.kind == Kind::broadcast || move_.kind == Kind::scatter) && !is_root()) return;
    if (move_.kind != Kind::reduce_scatter_v && move_.kind != Kind::scatter_sums)
      return put_rows(memory.before, memory.begin, input_shape(), first, data);
    std::size_t row = 0;
    for (const Place& p : places_) {
      put_rows(memory.before, memory.begin, input_shape(), p.begin,
               std::span(data).subspan(row * row_bytes_, p.rows * row_bytes_));
      row += p.rows;
    }
  }

  void put_result(Memory& memory, std::size_t base, std::size_t tensor) const {
    put_rows(memory.after, memory.begin, output_shape(), base, result_of(tensor));
  }
  Bytes part_of(const Bytes& message, std::size_t rank) const {
    const std::size_t bytes = move_.rows * row_bytes_;
    const auto part = std::span(message).subspan(rank * bytes, bytes);
    return {part.begin(), part.end()};
  }
  Bytes result_of(std::size_t tensor) const {
    if (move_.kind == Kind::broadcast) return rank_data(tensor, move_.root);
    if ((move_.kind == Kind::reduce || move_.kind == Kind::gather) && !is_root()) return {};
    std::vector<Bytes> data;
    for (int rank = 0; rank < ranks_; ++rank) data.push_back(rank_data(tensor, rank));
    const std::vector<std::span<const std::byte>> messages(data.begin(), data.end());
    const auto self = static_cast<std::size_t>(rank_);
    if (move_.kind == Kind::all_to_all) return oracle::exchanged(messages, self);
    if (move_.kind == Kind::reduce) return oracle::reduce(move_.type, move_.op, data);
    if (move_.kind == Kind::gather_sums && move_.group_ranks > 1)
      return oracle::gathered_sums(move_.type, places_, group_ranks(), messages, row_bytes_);
    if (move_.kind == Kind::scatter_sums)
      return oracle::scattered_sums(move_.type, places_, group_ranks(), messages, self, row_bytes_);
    if (move_.kind == Kind::scatter) return part_of(data[static_cast<std::size_t>(move_.root)], self);
    if (reduces(move_.kind) && move_.kind != Kind::gather_sums)
      return oracle::scattered(move_.type, move_.op, places_, messages, self, row_bytes_);
    return oracle::gathered(places_, messages, row_bytes_);
  }

  Move move_;
  int ranks_, rank_;
  std::vector<Place> places_;
  std::size_t whole_rows_ = 0, tensor_ = 0, row_bytes_ = 0;
};

}  // namespace

std::string describe(const Move& move) {
  if (move.kind == Kind::messages) return describe_letters(move);
  constexpr const char* kinds[] = {"all_gather",   "all_to_all",       "broadcast",   "reduce_scatter",
                                   "all_gather_v", "reduce_scatter_v", "reduce",      "gather",
                                   "scatter",      "gather_sums",      "scatter_sums"};
  return fmt::format(
      "{} {} of {} rows of {}{}[{}], counts [{}] {} {} {} [{}]{} in groups of {}{}, gaps {} {}, shifts {} {}, root {}, "
      "seed {}, launch {}×{}",
      kinds[static_cast<int>(move.kind)], name(move.op), move.rows, name(move.type),
      move.unit == 0 ? "" : fmt::format(" in units of {}", move.unit), fmt::join(move.widths, ", "),
      fmt::join(move.counts, " "), name(move.sharding), name(move.padding), move.slot_rows, fmt::join(move.slots, " "),
      move.counts_at == CountsAt::device ? "" : ", on the host", move.group_ranks, move.in_place ? ", in place" : "",
      move.input_gap, move.output_gap, move.input_shift, move.output_shift, move.root, move.seed, move.launch.blocks,
      move.launch.threads);
}

std::vector<Place> places_of(const Move& move, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<std::size_t> rows(n, move.rows);
  if (!ragged(move.kind)) return oracle::places_of(rows, Padding::none);
  const auto count = [&](std::size_t rank) { return static_cast<std::size_t>(std::max(move.counts.at(rank), 0)); };
  for (std::size_t rank = 0; rank < n; ++rank)
    rows[rank] = move.sharding == Sharding::none ? count(rank) : oracle::part_of(count(0), n, rank, move.sharding).size;
  return oracle::places_of(rows, move.padding, move.slot_rows, move.slots);
}

Memory memory_of(std::size_t bytes, std::size_t shift) {
  const Bytes canaries((kGuard + shift + bytes + kGuard + kGuard - 1) / kGuard * kGuard, kNanCanary);
  return {.before = canaries, .after = canaries, .begin = kGuard + shift};
}

RankMove prepare(const Move& move, int ranks, int rank) {
  if (move.kind == Kind::messages) return prepare_letters(move, rank);
  return Builder(move, ranks, rank).build();
}

void expect_after(const RankMove& prepared, const Memory& memory, std::span<const std::byte> got) {
  Bytes after = memory.after;
  after.resize(std::max(got.size(), after.size()), kNanCanary);
  const std::size_t at = first_difference(after, got);
  if (at == after.size()) return;
  const auto index = &memory - prepared.memory.data();
  throw std::runtime_error(fmt::format("{}: byte {} of memory {} is {:#04x} instead of {:#04x}",
                                       describe(prepared.move),
                                       static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(memory.begin),
                                       index, static_cast<int>(got[at]), static_cast<int>(after[at])));
}

}  // namespace weft::test
