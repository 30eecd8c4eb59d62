// Counts that ranks exchange, with known answers, the same for CPU ranks and GPU ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/counts.hpp"

namespace weft::test {

struct CountsCase {
  std::vector<std::int32_t> rows = {};  // of each group, or of each rank; other numbers follow from the seed
  std::size_t columns = 1;
  std::size_t group_ranks = 1;
  Sharding sharding = Sharding::balanced;
  bool split_slots = false;
  Padding padding = Padding::none;
  std::size_t slot_rows = 0;
  bool host = true;  // whether there is a host output
  std::uint32_t seed = 0;
  std::uint32_t tag = 0;
};
std::string describe(const CountsCase& c);

// Every rank's result, by the oracle.
std::vector<std::int32_t> gathered(const CountsCase& c, int ranks);

// A rank's input, output and host output, each between canaries, before and after the call.
inline constexpr std::size_t kCountGuard = 8;
struct CountsMemory {
  std::vector<std::int32_t> before, after;
};
std::array<CountsMemory, 3> counts_memory(const CountsCase& c, int ranks, int rank);

// `memory`: the addresses of the three, at their canaries.
void issue(const Group& group, const CountsCase& c, const std::array<std::int32_t*, 3>& memory, Stream stream);
// Throws the first wrong word.
void expect_after(const CountsCase& c, const CountsMemory& memory, const std::int32_t* got);

// Makes the call on a CPU rank, and checks its outputs and everything around them.
void run_on_cpu_rank(const Group& group, const CountsCase& c);

// Any group size that divides the ranks, kinds of slots, splits, numbers of columns.
std::vector<CountsCase> counts_cases(int ranks);

// Numbers that make no slots, among four ranks in groups of `group_ranks`.
struct CountsMisfit {
  const char* name;
  const char* reason;
  std::vector<std::int32_t> rows;  // of each rank
  Padding padding = Padding::none;
  std::size_t slot_rows = 0;
  std::size_t group_ranks = 1;
};
std::vector<CountsMisfit> counts_misfits();

}  // namespace weft::test
