// Impossible calls, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/collectives.hpp"

namespace weft::test {

struct RejectedAllReduce {
  std::string part;  // of the message: the argument's name, its value, and the range if there is one
  AllReduceArgs args;
};
// `memory`: 8192 bytes that a call could use.
std::vector<RejectedAllReduce> rejected_all_reduces(std::byte* memory, Device device);

struct RejectedMove {
  std::string part;
  std::function<void(const Group&)> call;
};
// Gathers and scatters among three ranks. `counts`: counts of four ranks that a call could use.
std::vector<RejectedMove> rejected_moves(std::byte* memory, const std::int32_t* counts, Device device);

}  // namespace weft::test
