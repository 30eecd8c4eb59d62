// Crossings with residual and norm with known answers, the same for CPU ranks and GPU ranks. A rank's memory is known
// byte for byte before and after a call, as for norms.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "oracle/moves.hpp"
#include "support/bytes.hpp"
#include "support/norms.hpp"
#include "weft/fused.hpp"

namespace weft::test {

struct NormedCrossing {
  bool gathers = true;
  std::vector<std::int32_t> counts;
  Sharding sharding = Sharding::none;  // else ranks share counts[0], in groups of one
  int group_ranks = 1;
  Padding padding = Padding::none;
  std::size_t slot_rows = 0;
  std::vector<std::int32_t> slots = {};  // per_rank
  std::size_t spare_rows = 0;            // of each capacity
  bool counts_on_host = false;
  Norm norm = {};  // its tokens, algorithm and output_in_place are not used; of its gaps, input_gap … fp8_gap
};
std::string describe(const NormedCrossing& c);

struct RankNormedCrossing {
  NormedCrossing of;
  std::size_t input_rows, shard_rows, output_rows;  // capacities
  NormMemory memory[kNormTensors];
  NormMemory counts;  // followed by given slots
  std::size_t places() const { return std::size(memory) + 1; }
  const NormMemory& place(std::size_t i) const { return i < std::size(memory) ? memory[i] : counts; }
};
RankNormedCrossing prepare(const NormedCrossing& c, int ranks, int rank);

// Makes the call. `address(i)`: of place i, aligned to 256 bytes.
void issue(const Group& group, const RankNormedCrossing& prepared,
           const std::function<std::byte*(std::size_t)>& address, Stream stream);
// Throws the first wrong byte of place i.
void expect_after(const RankNormedCrossing& prepared, std::size_t i, std::span<const std::byte> got);

// A rank's memory on the host: made once, for the largest call; filled, used and checked any number of times.
class HostNormedCrossing {
 public:
  explicit HostNormedCrossing(const RankNormedCrossing& largest);
  void fill(const RankNormedCrossing& next);
  void call(const Group& group);
  void check(const RankNormedCrossing& next);

 private:
  std::span<std::byte> storage(std::size_t i) { return storage_[i].span(); }
  const RankNormedCrossing& largest_;
  AlignedBytes storage_[kNormTensors + 1];
};
void run_on_cpu_rank(const Group& group, const NormedCrossing& c);

// Every shape of counts in every kind of slot; outputs, casts, layouts and fills in turn.
std::vector<NormedCrossing> normed_crossings_of_every_shape(int ranks);
// So many of them, drawn from a seed that the number of ranks determines, of short rows.
std::vector<NormedCrossing> mixed_normed_crossings(int ranks, std::size_t count);
// Rows of a model, so many on each rank but for one that has a single row.
std::vector<NormedCrossing> long_normed_crossings(int ranks, std::int32_t rows);

}  // namespace weft::test
