#include "workloads/gather_reference.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

namespace weft::cli {

ReferenceArgs GatherReference::sums() const {
  return {.count = shape_.padded_rows() * shape_.row_elements(),
          .type = shape_.type,
          .data = data_,
          .ranks = static_cast<int>(shape_.ranks()),
          .step = step_};
}

void GatherReference::gather() {
  const std::size_t size = size_of(shape_.type);
  std::vector<std::vector<std::byte>> inputs(shape_.ranks());
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < inputs.size(); ++r) {
      threads.emplace_back([&, r] {
        inputs[r].resize(shape_.input_elements() * size);
        fill(inputs[r].data(), 0, shape_.input_elements(), shape_.type, data_, static_cast<int>(r), step_);
      });
    }
  }
  for (std::size_t t = 0; t < shape_.widths.size(); ++t) {
    std::vector<std::span<const std::byte>> messages;
    for (const auto& input : inputs) messages.push_back(std::span(input).subspan(shape_.input_at(t) * size));
    std::ranges::copy(oracle::gathered(places_, messages, shape_.row_bytes(t)),
                      all_.begin() + static_cast<std::ptrdiff_t>(shape_.output_at(t) * size));
  }
}

// The result of an all-to-all: of every rank's input the part that is for `rank`.
std::vector<std::byte> GatherReference::parts_for(std::size_t rank) const {
  const std::size_t bytes = shape_.most_rows() * shape_.row_bytes(0), elements = bytes / size_of(shape_.type);
  std::vector<std::byte> input(bytes * shape_.ranks()), parts;
  for (std::size_t from = 0; from < shape_.ranks(); ++from) {
    fill(input.data(), rank * elements, (rank + 1) * elements, shape_.type, data_, static_cast<int>(from), step_);
    const auto part = std::span(input).subspan(rank * bytes, bytes);
    parts.insert(parts.end(), part.begin(), part.end());
  }
  return parts;
}

void GatherReference::prepare(const GatherShape& shape, Data data, int step) {
  if (shape == shape_ && data == data_ && step == step_) return;
  shape_ = shape;
  data_ = data;
  step_ = step;
  const ReferenceArgs args = sums();
  if (shape.operation == Operation::all_to_all) return;  // another one for each rank
  if (shape.operation == Operation::broadcast || shape.operation == Operation::barrier) {
    all_.assign(shape.output_elements() * size_of(shape.type), std::byte{});
    if (shape.operation == Operation::barrier) return reduce_reference(args, 0, 1, all_.data());
    return fill(all_.data(), 0, args.count, shape.type, data, /*rank=*/0, step);
  }
  std::vector<std::int32_t> given;
  for (const RowRange& slot : shape.slots) given.push_back(static_cast<std::int32_t>(slot.size()));
  places_ = oracle::places_of(shape.rows, shape.slot, shape.slot_rows, given);
  all_.assign((shape.scatters() ? args.count : shape.output_elements()) * size_of(shape.type), std::byte{});
  if (!shape.scatters()) return gather();
  std::vector<std::jthread> threads;
  for (const oracle::Place& place : places_) {
    threads.emplace_back([&] {
      const std::size_t first = place.begin * shape.row_elements();  // pads stay zero
      reduce_reference(args, first, first + place.rows * shape.row_elements(), all_.data());
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
    const std::size_t first = places_[rank].begin * shape_.row_elements();
    const std::size_t bytes = places_[rank].slot * shape_.row_elements() * size;
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
