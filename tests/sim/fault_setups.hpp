// Set-ups in which something goes wrong on purpose.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "sim/setup.hpp"

namespace weft::sim {

inline constexpr std::uint64_t kDeadline = 100'000;  // ns of the simulated clock: ten thousand steps

// `kind`: "mismatch", "ahead", "stops", "dies", "aborted", "host reads", "overlap", "unordered".
inline Setup fault_setup(const std::string& kind, Algorithm algorithm, unsigned ranks, bool one_thread = false) {
  Setup setup{.name = kind,
              .algorithm = algorithm,
              .type = DataType::bf16,
              .ranks = ranks,
              .atomic_bytes = 8,
              .one_thread = one_thread,
              .payload = Payload::special,
              .deadline_ns = kDeadline};
  setup.calls = {{.count = 17, .grids = {{2, 2}, {3, 1}}}, {.count = 9, .in_place = true}, {.count = 20}};
  const int last = static_cast<int>(ranks) - 1;
  if (kind == "mismatch" || kind == "host reads") {
    setup.faults.odd_rank = last;
    setup.faults.odd_call = 1;
  }
  if (kind == "host reads") setup.faults.host_reads = true;
  if (kind == "ahead") setup.faults.ahead_rank = last;
  if (kind == "stops" || kind == "dies" || kind == "aborted") setup.faults.stopping_rank = last;
  if (kind == "dies" || kind == "aborted") setup.deadline_ns = 0;
  if (kind == "aborted") setup.faults.aborting_rank = 0;
  if (kind == "overlap" || kind == "unordered") setup.faults.unordered_rank = last;
  setup.faults.overlaps = kind == "overlap";
  if (!setup.faults.any()) throw std::invalid_argument("no such fault: " + kind);
  return setup;
}

}  // namespace weft::sim
