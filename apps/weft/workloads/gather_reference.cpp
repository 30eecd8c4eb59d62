#include "workloads/gather_reference.hpp"

#include <fmt/format.h>

#include <cstring>
#include <thread>

namespace weft::cli {

ReferenceArgs GatherReference::sums() const {
  return {.count = shape_.padded_rows() * shape_.row_elements(),
          .type = shape_.type,
          .data = data_,
          .ranks = static_cast<int>(shape_.ranks()),
          .step = step_};
}

// Copies a rank's rows to their slot.
void GatherReference::gather(std::size_t rank) {
  const std::size_t size = size_of(shape_.type);
  std::vector<std::byte> input(shape_.input_elements() * size);
  fill(input.data(), 0, shape_.input_elements(), shape_.type, data_, static_cast<int>(rank), step_);
  for (std::size_t t = 0; t < shape_.widths.size(); ++t) {
    const std::size_t to = shape_.output_at(t) + shape_.first_row(rank) * shape_.widths[t];
    std::memcpy(all_.data() + to * size, input.data() + shape_.input_at(t) * size,
                shape_.rows[rank] * shape_.row_bytes(t));
  }
}

// The output of `rank` in an all-to-all: its part of every rank's input.
std::vector<std::byte> GatherReference::parts_for(std::size_t rank) const {
  const std::size_t bytes = shape_.most_rows() * shape_.row_bytes(0), elements = bytes / size_of(shape_.type);
  std::vector<std::byte> parts(bytes * shape_.ranks()), input(parts.size());
  for (std::size_t from = 0; from < shape_.ranks(); ++from) {
    fill(input.data(), rank * elements, (rank + 1) * elements, shape_.type, data_, static_cast<int>(from), step_);
    std::memcpy(parts.data() + from * bytes, input.data() + rank * bytes, bytes);
  }
  return parts;
}

void GatherReference::prepare(const GatherShape& shape, Data data, int step) {
  if (shape == shape_ && data == data_ && step == step_) return;
  shape_ = shape;
  data_ = data;
  step_ = step;
  const ReferenceArgs args = sums();
  if (shape.operation == Operation::all_to_all) return;  // every rank has a different output; see parts_for()
  if (shape.operation == Operation::broadcast || shape.operation == Operation::barrier) {
    all_.assign(shape.output_elements() * size_of(shape.type), std::byte{});
    if (shape.operation == Operation::barrier) return reduce_reference(args, 0, 1, all_.data());
    return fill(all_.data(), 0, args.count, shape.type, data, /*rank=*/0, step);
  }
  all_.assign((shape.scatters() ? args.count : shape.output_elements()) * size_of(shape.type), std::byte{});
  std::vector<std::jthread> threads;
  for (std::size_t r = 0; r < shape.ranks(); ++r) {
    threads.emplace_back([&, r] {
      if (!shape.scatters()) return gather(r);
      const std::size_t first = shape.first_row(r) * shape.row_elements();  // padding stays zero
      reduce_reference(args, first, first + shape.rows[r] * shape.row_elements(), all_.data());
    });
  }
}

std::string GatherReference::check(std::size_t rank, std::span<const std::byte> output, bool exact) const {
  const std::size_t size = size_of(shape_.type);
  const std::span<const std::byte> all = all_;
  if (shape_.operation == Operation::barrier) return compare(sums(), all.first(size), output.first(size), exact);
  if (shape_.operation == Operation::all_to_all) {
    const std::vector<std::byte> parts = parts_for(rank);
    return compare(sums(), parts, output.first(parts.size()), /*exact=*/true);
  }
  if (shape_.scatters()) {
    const std::size_t first = shape_.first_row(rank) * shape_.row_elements();
    const std::size_t bytes = shape_.slots[rank].size() * shape_.row_elements() * size;
    return compare(sums(), all.subspan(first * size, bytes), output.first(bytes), exact, first);
  }
  for (std::size_t t = 0; t < shape_.widths.size(); ++t) {
    const std::size_t at = shape_.output_at(t) * size, bytes = shape_.padded_rows() * shape_.row_bytes(t);
    const std::string wrong = compare(sums(), all.subspan(at, bytes), output.subspan(at, bytes), /*exact=*/true);
    if (!wrong.empty()) return shape_.widths.size() == 1 ? wrong : fmt::format("tensor {}: {}", t, wrong);
  }
  return {};
}

}  // namespace weft::cli
