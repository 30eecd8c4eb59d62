// Counts that ranks tell each other, with known answers, the same for CPU ranks and GPU ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/counts.hpp"

namespace weft::test {

struct CountsCase {
  std::vector<std::int32_t> rows = {};  // of each group, or of each rank; what else ranks tell follows from the seed
  std::size_t columns = 1;
  std::size_t group_ranks = 1;
  Split split = Split::balanced;
  bool split_slots = false;
  SlotKind slot = SlotKind::dense;
  std::size_t slot_rows = 0;
  bool host = true;  // there is a host output
  std::uint32_t seed = 0;
  std::uint32_t tag = 0;
};
std::string describe(const CountsCase& c);

// What every rank knows afterwards, of the oracle.
std::vector<std::int32_t> gathered(const CountsCase& c, int ranks);

// A rank's input, output and host output, each between canaries, before and after the call.
inline constexpr std::size_t kCountGuard = 8;
struct CountsMemory {
  std::vector<std::int32_t> before, after;
};
std::array<CountsMemory, 3> counts_memory(const CountsCase& c, int ranks, int rank);

// `memory`: where those three begin, with their canaries.
void issue(const Group& group, const CountsCase& c, const std::array<std::int32_t*, 3>& memory, Stream stream);
// Throws with the first word that is not as it should be.
void expect_after(const CountsCase& c, const CountsMemory& memory, const std::int32_t* got);

// Makes the call on a CPU rank and checks all that it did and did not write.
void run_on_cpu_rank(const Group& group, const CountsCase& c);

// Any group size that divides the ranks, kinds of slots, splits, numbers of columns.
std::vector<CountsCase> counts_cases(int ranks);

// Numbers that make no slots, among four ranks in groups of `group_ranks`: what each rank says.
struct CountsMisfit {
  const char* name;
  const char* reason;
  std::vector<std::int32_t> rows;  // of each rank
  SlotKind slot = SlotKind::dense;
  std::size_t slot_rows = 0;
  std::size_t group_ranks = 1;
};
std::vector<CountsMisfit> counts_misfits();

}  // namespace weft::test
