// Keeps the reference of the last size, so that a row of a table computes it once, and lets the ranks share the work.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {

class Checker {
 public:
  // Called by every rank of this process: makes the reference for `args` unless it is there already.
  void prepare(Ranks::Seat& seat, int local_size, const ReferenceArgs& args);
  std::span<const std::byte> reference() const { return reference_; }
  // compare() with it; safe from all ranks at once.
  std::string check(std::span<const std::byte> got, bool exact) const { return compare(args_, reference_, got, exact); }

 private:
  ReferenceArgs args_;
  std::vector<std::byte> reference_;
};

}  // namespace weft::cli
