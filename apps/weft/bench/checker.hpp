// Keeps the reference of the last size: a row of a table computes it once, and the ranks share the work.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {

class Checker {
 public:
  // Called by every rank of this process. Makes the reference for `args` unless it is there already.
  void prepare(Ranks::Seat& seat, int local_size, const ReferenceArgs& args);
  std::span<const std::byte> reference() const { return reference_; }
  // Compares with the reference. All ranks may call it at once.
  std::string check(std::span<const std::byte> got, bool exact) const { return compare(args_, reference_, got, exact); }

 private:
  ReferenceArgs args_;
  std::vector<std::byte> reference_;
};

}  // namespace weft::cli
