// The right result of a gather or scatter: the oracle makes it of the pattern.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "oracle/moves.hpp"
#include "workloads/gather_shape.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {

class GatherReference {
 public:
  // Computes it for inputs of `step`, unless the last ones are still good.
  void prepare(const GatherShape& shape, Data data, int step);
  // Empty when `output`, a rank's whole output buffer, is right; else where it is not. `exact`: see compare().
  std::string check(std::size_t rank, std::span<const std::byte> output, bool exact) const;

 private:
  void gather();
  std::vector<std::byte> parts_for(std::size_t rank) const;
  ReferenceArgs sums() const;

  GatherShape shape_;
  std::vector<oracle::Place> places_;  // of the ranks' rows
  Data data_ = Data::integers;
  int step_ = 0;
  std::vector<std::byte> all_;  // scatters: all ranks' rows; all_to_all: none; others: as the output
};

}  // namespace weft::cli
