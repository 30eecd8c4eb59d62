// Taking rows out of all slots, with known answers, the same for CPU ranks and GPU ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "support/bytes.hpp"
#include "support/cases.hpp"
#include "weft/take.hpp"

namespace weft::test {

struct TakeCase {
  std::vector<std::int32_t> rows = {};  // of each slot
  std::size_t slot = 0;                 // the slot that is taken
  std::size_t shards = 1, shard = 0;
  Sharding sharding = Sharding::none;
  bool split_slots = false;
  Padding kind = Padding::none;
  std::size_t slot_rows = 0;
  std::vector<std::int32_t> given = {};  // rows of each slot, if slots are given
  std::size_t row_bytes = 1;
  std::size_t input_gap = 0, output_gap = 0;      // bytes between rows
  std::size_t input_shift = 0, output_shift = 0;  // bytes from an aligned address
  std::size_t spare_rows = 0;                     // rows of the output beyond the taken ones
  std::uint32_t seed = 0;
};
std::string describe(const TakeCase& c);

// A call's input, output and counts in memory, before and after it. Canaries around them, padding and gaps are NaNs.
struct TakeMemory {
  Bytes before, after;
  std::size_t begin;  // from an address aligned to 256 bytes
};
struct PreparedTake {
  TakeCase c;
  std::array<TakeMemory, 3> memory;
  std::size_t input_rows, output_rows;
};
PreparedTake prepare(const TakeCase& c);

// `memory`: the address of each of the three, at its canaries.
void issue(const Group& group, const PreparedTake& take, const std::array<std::byte*, 3>& memory, Stream stream);
// Throws the first wrong byte of memory `index`.
void expect_after(const PreparedTake& take, std::size_t index, const std::byte* got);

// A CPU rank's memory for a call.
class HostTake {
 public:
  explicit HostTake(const PreparedTake& take);
  void call(const Group& group) { issue(group, take_, address_, nullptr); }
  void check() const;

 private:
  const PreparedTake& take_;
  std::array<AlignedBytes, 3> storage_;
  std::array<std::byte*, 3> address_;
};

// Makes the call on a CPU rank, and checks its outputs and everything around them.
void run_on_cpu_rank(const Group& group, const TakeCase& c);

// Every kind of slot, whole and in shards, rows of any width, stride and address, slots without rows.
std::vector<TakeCase> take_cases();

// Counts and capacities that do not fit.
struct TakeMisfit {
  const char* name;
  const char* reason;
  std::vector<std::int32_t> rows;  // found by a call of the second slot that is prepared for slots of four rows
  Padding kind = Padding::none;
  std::vector<std::int32_t> given = {};  // rows of each slot, if slots are given
};
std::vector<TakeMisfit> take_misfits();
// The call of a misfit, and its memory, which must not change.
PreparedTake prepare(const TakeMisfit& misfit);

}  // namespace weft::test
