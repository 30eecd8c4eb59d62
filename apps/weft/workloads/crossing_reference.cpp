#include "workloads/crossing_reference.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "oracle/moves.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

using Bytes = std::vector<std::byte>;

// A tensor's rows of the parts without their pads, which must be zero.
struct Compact {
  Bytes rows = {};
  std::string wrong = {};

  template <class Parts>
  Compact(const Parts& parts, std::span<const std::byte> tensor, std::size_t row_bytes, bool has_pads) {
    for (const auto& part : parts) {
      const auto own = tensor.subspan(part.begin * row_bytes, part.rows * row_bytes);
      rows.insert(rows.end(), own.begin(), own.end());
      if (!has_pads) continue;
      const auto pads = tensor.subspan((part.begin + part.rows) * row_bytes, (part.slot - part.rows) * row_bytes);
      const auto set = std::ranges::find_if(pads, [](std::byte b) { return b != std::byte{0}; });
      if (set == pads.end() || !wrong.empty()) continue;
      const auto at = static_cast<std::size_t>(set - pads.begin());
      wrong = fmt::format("byte {} of the pad in row {} is not zero", at % row_bytes,
                          part.begin + part.rows + at / row_bytes);
    }
  }
};

// The rows that a rank sends, side by side. Its input has those of a scatter in their slots.
Bytes sent_by(const CrossingShape& shape, std::size_t rank, Data data, int step) {
  const std::size_t rows = shape.gathers() ? shape.group_rows(rank) : shape.all.padded_rows();
  Bytes input(rows * shape.row_bytes());
  fill(input.data(), 0, rows * shape.hidden(), shape.all.type, data, static_cast<int>(rank), step);
  if (shape.gathers()) return input;
  Bytes sent;
  for (std::size_t to = 0; to < shape.ranks(); ++to) {
    const auto slot = std::span(input).subspan(shape.all.slots[to].begin * shape.row_bytes());
    const auto part = slot.first(shape.all.rows[to] * shape.row_bytes());
    sent.insert(sent.end(), part.begin(), part.end());
  }
  return sent;
}

}  // namespace

void CrossingReference::prepare(const CrossingShape& shape, Data data, int step) {
  if (shape == shape_ && data == data_ && step == step_) return;
  shape_ = shape, data_ = data, step_ = step;
  std::vector<Bytes> inputs(shape.ranks());
  std::vector<std::span<const std::byte>> messages;
  for (std::size_t from = 0; from < shape.ranks(); ++from) {
    inputs[from] = sent_by(shape, from, data, step);
    messages.emplace_back(inputs[from]);
  }
  std::vector<std::int32_t> lengths;
  for (const RowRange& slot : shape.all.slots) lengths.push_back(static_cast<std::int32_t>(slot.size()));
  const auto places = oracle::places_of(shape.all.rows, shape.all.padding, shape.all.slot_rows, lengths);
  expected_.clear();
  if (shape.gathers()) {
    expected_.push_back(oracle::gathered_sums(shape.all.type, places, shape.group_ranks, messages, shape.row_bytes()));
    return;
  }
  for (std::size_t first = 0; first < shape.ranks(); first += shape.group_ranks)
    expected_.push_back(
        oracle::scattered_sums(shape.all.type, places, shape.group_ranks, messages, first, shape.row_bytes()));
}

std::vector<CrossingReference::Part> CrossingReference::parts_of(std::size_t rank) const {
  const CrossingShape& of = shape_;
  std::vector<Part> parts;
  const std::size_t first = of.gathers() ? 0 : of.first_of(rank),
                    end = of.gathers() ? of.ranks() : first + of.group_ranks;
  for (std::size_t from = first; from < end; ++from) {
    const RowRange& slot = of.all.slots[from];
    Part part{.begin = slot.begin, .rows = of.all.rows[from], .slot = slot.size()};
    if (of.gathers()) {
      part.first_sender = of.first_of(from), part.senders = of.group_ranks;
      part.sent_at = of.rows_between(of.first_of(from), from);
    } else {  // a group's rows lie side by side, and all pads behind them
      part.begin = of.rows_between(first, from), part.slot = part.rows;
      part.first_sender = 0, part.senders = of.ranks();
      part.sent_at = slot.begin;
    }
    parts.push_back(part);
  }
  if (!of.gathers()) parts.back().slot += of.group_slots(rank) - of.group_rows(rank);
  return parts;
}

std::span<const std::byte> CrossingReference::expected_of(std::size_t rank) const {
  return expected_[shape_.gathers() ? 0 : rank / shape_.group_ranks];
}

std::string CrossingReference::check(const CrossingOutput& output) const {
  const std::size_t bytes = shape_.row_bytes();
  const auto parts = parts_of(output.rank);
  for (const Part& part : parts) {
    const ReferenceArgs sums{.count = part.rows * shape_.hidden(),
                             .type = shape_.all.type,
                             .data = data_,
                             .ranks = static_cast<int>(part.senders),
                             .step = step_,
                             .first_rank = static_cast<int>(part.first_sender)};
    const auto rows_of = [&](std::span<const std::byte> tensor) {
      return tensor.subspan(part.begin * bytes, part.rows * bytes);
    };
    const std::string wrong = compare(sums, rows_of(expected_of(output.rank)), rows_of(output.rows),
                                      output.exact || part.senders == 1, part.sent_at * shape_.hidden());
    if (!wrong.empty()) return fmt::format("rows from {} on: {}", part.begin, wrong);
  }
  return Compact(parts, output.rows, bytes, output.has_pads).wrong;
}

// Against the norm of the sums that are expected without it.
std::string CrossingReference::check(const CrossingOutput& output, const NormedCrossing& normed) const {
  const auto parts = parts_of(output.rank);
  const bool casts = normed.form.fp8.has_value();
  const Compact sums(parts, expected_of(output.rank), shape_.row_bytes(), true);
  const Compact rows(parts, output.rows, casts ? shape_.hidden() : shape_.row_bytes(), output.has_pads);
  if (!rows.wrong.empty()) return rows.wrong;
  const std::size_t first = shape_.gathers() ? 0 : shape_.first_of(output.rank);
  NormOutputs got{.residual = normed.residual, .normed = {}, .residual_row = shape_.rows_between(first, output.rank)};
  Bytes scales;
  if (casts) {
    Compact made(parts, normed.scales, shape_.hidden() / kScaleColumns * sizeof(float), output.has_pads);
    if (!made.wrong.empty()) return "scales: " + made.wrong;
    scales = std::move(made.rows);
    got.fp8 = rows.rows, got.scales = scales;
  } else {
    got.normed = rows.rows;
  }
  const ReferenceArgs of{.count = sums.rows.size() / size_of(shape_.all.type),
                         .type = shape_.all.type,
                         .data = data_,
                         .ranks = static_cast<int>(shape_.ranks()),
                         .step = step_};
  return compare_norm({.sum = of, .hidden = shape_.hidden(), .epsilon = normed.epsilon, .form = normed.form}, sums.rows,
                      got);
}

}  // namespace weft::cli
