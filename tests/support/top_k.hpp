// Searches for the largest numbers with known answers, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "support/cases.hpp"
#include "support/guarded.hpp"
#include "weft/top_k.hpp"

namespace weft::test {

// any: bits; ties: of four numbers alone; rising, falling: each column is above, or below, the one before; crowded: the
// largest are neighbours in one shard.
enum class Numbers { any, ties, special, rising, falling, crowded };

struct TopKCase {
  std::size_t rows = 1, shard = 8;
  std::size_t columns = 0;  // 0: all shards'
  bool even = false;        // as torch.tensor_split divides them
  std::size_t k = 1;
  DataType type = DataType::bf16;
  Numbers numbers = Numbers::any;
  std::size_t gap = 0, shift = 0;  // of the input: elements between rows, and from an aligned address
  bool no_values = false;
  Launch launch = {};
  std::uint32_t seed = 0;
};
std::string describe(const TopKCase& c);

// Every kind of numbers and every type; pads, shards of any width at any address, few rows in parts, many rows.
std::vector<TopKCase> top_k_cases(int ranks);

// A few, of short rows.
std::vector<TopKCase> few_top_k_cases(int ranks);

// A rank's tensors. The input begins at byte `input_begin`.
struct PreparedTopK {
  TopKCase c;
  Bytes input;
  std::size_t input_begin = 0;
  Bytes values, indices;  // that are right
};
PreparedTopK prepare(const TopKCase& c, int ranks, int rank);
// `memory`: with the contents of `prepared.input`.
TopKColumnsArgs arguments_of(const PreparedTopK& prepared, const std::byte* memory, std::byte* values,
                             std::byte* indices, Stream stream);

// A rank's memory on the host: made once; filled, used and checked any number of times. Other cases may differ only in
// the seed.
class HostTopK {
 public:
  explicit HostTopK(const PreparedTopK& first);
  void fill(const PreparedTopK& next);
  // Makes the call that was prepared first.
  void call(const Group& group);
  void check(const PreparedTopK& next);

 private:
  const PreparedTopK& first_;
  Guarded input_, values_, indices_;
};

// Makes the call on a CPU rank and compares everything.
void run_on_cpu_rank(const Group& group, const TopKCase& c);
// Throws if an output differs from what is right.
void expect_largest(const PreparedTopK& prepared, std::span<const std::byte> values,
                    std::span<const std::byte> indices);

}  // namespace weft::test
