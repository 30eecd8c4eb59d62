// The places of ranks' rows in a ragged call of a program, found apart from the production code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/setup.hpp"

namespace weft::sim {

struct Slots {
  std::vector<std::uint64_t> rows, slots, begins;  // by rank; `begins` has one more
};
Slots slots_of(const CallSetup& spec, std::size_t ranks);

}  // namespace weft::sim
