// All-reduce calls with known answers, the same for CPU ranks and GPU ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "support/guarded.hpp"
#include "support/reference.hpp"
#include "weft/collectives.hpp"

namespace weft::test {

enum class Fill {
  integers,  // small, of rank and index: every sum is exact, and ranks and neighbours all differ
  random,    // finite, of many magnitudes: sums are rounded and depend on the order
  bits,      // any bit pattern
  special,   // ±0, subnormals, infinities, NaNs, the largest numbers, and the wire formats' resting words
};

struct Case {
  std::size_t count = 0;
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Algorithm algorithm = Algorithm::automatic;
  Fill fill = Fill::integers;
  bool in_place = false;
  std::size_t input_shift = 0, output_shift = 0;  // elements from an aligned address
  std::uint32_t seed = 0;
  std::uint32_t tag = 0;
  Launch launch = {};
};

std::string describe(const Case& c);

// The input of `rank`.
Bytes input_of(const Case& c, int rank);

// A case with every rank's input and the only right output.
struct Prepared {
  Case call;
  std::vector<Bytes> inputs;
  Bytes expected;
};
Prepared prepare(const Case& c, int ranks);
std::vector<Prepared> prepare_all(const std::vector<Case>& cases, int ranks);

// Throws the case and the first wrong element if `got` differs from `wanted`.
void expect_equal(const Case& c, std::span<const std::byte> wanted, std::span<const std::byte> got);

// A pair of tensors in host memory, as a call sees it.
struct Tensors {
  Tensors(const Case& c, const Bytes& content);
  Guarded input, output;  // in place: only output is used
  bool in_place;

  // Throws if the output is wrong, or if anything else was written.
  void check(const Prepared& prepared, int rank);
};

// Makes the call on a CPU rank and checks its writes. `rank` is the index into Prepared's inputs.
void run_on_cpu_rank(const Group& group, const Prepared& prepared, int rank);

// The call's arguments, with pointers.
AllReduceArgs arguments(const Case& c, const void* input, void* output);

// Ways in which one rank's call can differ from the others'. The others call `algorithm` with a tag below 9.
struct Mismatch {
  const char* name;
  std::function<void(Case& c)> change;
};
std::vector<Mismatch> every_mismatch(Algorithm algorithm);

inline constexpr DataType kTypes[] = {DataType::bf16, DataType::f16, DataType::f32,
                                      DataType::i32,  DataType::i64, DataType::u8};
inline constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::avg};
// Mostly sums, whose instances are the most, and in turn the other operations.
constexpr ReduceOp mostly_sum(std::size_t turn) {
  return turn % 3 == 0 ? kOps[turn / 3 % std::size(kOps)] : ReduceOp::sum;
}
inline constexpr Algorithm kAlgorithms[] = {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined};
inline std::string test_name(Algorithm algorithm) {
  constexpr const char* names[] = {"Automatic", "OneShot",         "TwoShot",        "Pipelined",
                                   "Nccl",      "MultimemOneShot", "MultimemTwoShot"};
  return names[static_cast<int>(algorithm)];
}

}  // namespace weft::test
