// The expected outputs of a crossing, with a norm on the way or without.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "workloads/crossing_shape.hpp"

namespace weft::cli {

// The output of a rank. Tensors may have more rows than the shape.
struct CrossingOutput {
  std::size_t rank = 0;
  std::span<const std::byte> rows = {};
  bool exact = true;     // else sums of floating types may have any order of additions
  bool has_pads = true;  // else nobody has written the pads of slots
};
// … and with a norm: e4m3 rows and their scales, if its form casts.
struct NormedCrossing {
  const NormForm& form;
  float epsilon = 0;
  std::span<const std::byte> residual = {};  // of the rank's shard
  std::span<const std::byte> scales = {};
};

class CrossingReference {
 public:
  // Sums what ranks send in `step`, unless it has done so for the last shape.
  void prepare(const CrossingShape& shape, Data data, int step);

  // Empty, or the fault.
  std::string check(const CrossingOutput& output) const;
  std::string check(const CrossingOutput& output, const NormedCrossing& normed) const;

 private:
  // Rows of an output that lie behind each other, with pads behind them.
  struct Part {
    std::size_t begin = 0, rows = 0, slot = 0;
    std::size_t first_sender = 0, senders = 0, sent_at = 0;  // summed of these ranks' rows from `sent_at` on
  };
  std::vector<Part> parts_of(std::size_t rank) const;
  std::span<const std::byte> expected_of(std::size_t rank) const;

  CrossingShape shape_ = {};
  Data data_ = Data::integers;
  int step_ = -1;
  std::vector<std::vector<std::byte>> expected_;  // a scatter's of each attention group; a gather has one for all
};

}  // namespace weft::cli
