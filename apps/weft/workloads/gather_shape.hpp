// The rows of a gather or scatter of data-parallel attention, and their layout in the benchmark's buffers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/parallel.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// One operation, the same on all ranks of a group. Tensors follow each other in a buffer. Each has the room that an
// engine would provide if it captured a graph for the largest rank.
struct GatherShape {
  Operation operation = Operation::all_gather;
  DataType type = DataType::bf16;
  std::vector<std::size_t> rows = {};    // of each rank
  std::vector<std::size_t> widths = {};  // of each tensor: elements of a row
  Padding padding = Padding::none;       // for ragged operations
  std::size_t slot_rows = 0;             // see Counts
  std::vector<RowRange> slots = {};      // of each rank, in the tensor of all ranks' rows

  bool operator==(const GatherShape&) const = default;

  bool scatters() const;
  std::size_t ranks() const { return rows.size(); }
  std::size_t first_row(std::size_t rank) const { return slots[rank].begin; }
  std::size_t own_rows() const;     // without padding
  std::size_t padded_rows() const;  // of the tensor of all ranks' rows
  std::size_t most_rows() const;
  std::size_t most_slot() const;
  std::size_t all_rows() const { return most_slot() * ranks(); }  // room for all ranks' slots
  std::size_t row_bytes(std::size_t tensor) const { return widths[tensor] * size_of(type); }
  std::size_t row_elements() const;                 // of all tensors
  std::size_t input_at(std::size_t tensor) const;   // elements before a tensor in the input …
  std::size_t output_at(std::size_t tensor) const;  // … and in the output
  std::size_t input_elements() const { return input_at(widths.size()); }
  std::size_t output_elements() const { return output_at(widths.size()); }

 private:
  std::size_t at(std::size_t tensor, std::size_t room) const;
};

struct GatherModel {
  ParallelLayout layout = {};
  std::int64_t hidden = 0;
  std::int64_t top_k = 8;  // ids and weights per token, for four_tensors
  // For ragged operations. fixed: slots for the largest rank. aligned: slots rounded to kAlignedRows. per_rank: the
  // rank's rows and fewer than kAlignedRows more, by a number that differs from the neighbours'.
  Padding padding = Padding::none;
};
inline constexpr std::size_t kAlignedRows = 8;

// The shape that `point.contender` moves for point.rows tokens per attention group. Contender::padded: the equal
// operation, with the largest rank's rows on every rank. Contender::one_tensor: the same bytes as one tensor.
// Contender::push: an all-gather, which has as many bytes from each rank to each. `group`: the attention group of an
// operation in groups; the first group has most tokens.
GatherShape gather_shape(const GatherModel& model, const Point& point, int group = 0);

// `layout` on at most `ranks` ranks. Attention groups keep their number of ranks if it divides them.
ParallelLayout scaled(const ParallelLayout& layout, int ranks);

}  // namespace weft::cli
