// All-reduces with residual and norm with known answers, the same for CPU ranks and GPU ranks. A rank's memory is known
// byte for byte before and after a call: inputs, gaps between rows and canaries are compared like results.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "support/bytes.hpp"
#include "support/cases.hpp"
#include "weft/fused.hpp"

namespace weft::test {

struct Norm {
  std::size_t tokens = 1, hidden = 64;
  DataType type = DataType::bf16;
  Fill fill = Fill::random;
  bool residual = true, residual_in_place = false;
  bool output = true, output_in_place = false;
  bool gamma_plus_one = false, gamma_f32 = false;
  float epsilon = 1e-6f;
  // Elements between rows; for fp8: bytes.
  std::size_t input_gap = 0, residual_gap = 0, residual_output_gap = 0, output_gap = 0, fp8_gap = 0;
  bool fp8 = false;
  Fp8Scaling scaling = Fp8Scaling::per_token;
  ScaleType scale_type = ScaleType::f32;
  float floor = 1e-4f;
  bool scales_by_columns = false;
  Algorithm algorithm = Algorithm::automatic;
  std::uint32_t seed = 0;
  std::uint32_t tag = 0;
  Launch launch = {};
};
std::string describe(const Norm& norm);

// The results of a call: bits of elements, row after row.
struct NormResult {
  std::vector<std::uint32_t> residual, output;
  Bytes fp8, scales;
};
// The rule of weft/fused.hpp, of the oracle. `sum` is all_reduce's result.
NormResult norm_of(const Norm& norm, const Bytes& sum, const Bytes& residual, const Bytes& gamma, float scale);

// Memory of one rank, before and after the call.
enum NormTensor { kInput, kResidual, kResidualOutput, kOutput, kGamma, kFp8, kScale, kScales, kNormTensors };
struct NormMemory {
  Bytes before, after;
};
// A tensor of so many bytes between canaries, and rows of it; the bits of elements, in two bytes each.
NormMemory memory_of(std::size_t bytes);
void put_rows(Bytes& memory, std::size_t row_bytes, std::size_t stride, std::span<const std::byte> rows);
Bytes bytes_of(const std::vector<std::uint32_t>& elements);
// A tensor of whole rows that a rank, or every rank, has; `what` tells tensors apart.
Bytes data_of(const Norm& norm, std::uint32_t what, int rank, std::size_t rows, Fill fill);
// γ, the same on every rank. As f32 its numbers are between those of `type`.
Bytes gamma_of(const Norm& norm);
// Scales of a row, and their places. By columns they have the padding that a grouped GEMM's alignment needs.
std::size_t groups_of(const Norm& norm);
std::size_t scale_bytes(const Norm& norm);
std::size_t scale_token_stride(const Norm& norm);
std::size_t scale_group_stride(const Norm& norm);
struct RankNorm {
  Norm norm;
  NormMemory memory[kNormTensors];  // in place: the output's memory
};
RankNorm prepare(const Norm& norm, int ranks, int rank);

// The call's arguments. `address(tensor)` returns the address of that memory, aligned to 256 bytes.
AllReduceRmsNormArgs arguments(const RankNorm& prepared, const std::function<std::byte*(NormTensor)>& address);

// Throws the first wrong byte.
void expect_after(const RankNorm& prepared, NormTensor tensor, std::span<const std::byte> got);

// A rank's memory on the host: made once; filled, used and checked any number of times. Other norms may differ only in
// the seed.
class HostNorm {
 public:
  explicit HostNorm(const RankNorm& first);
  void fill(const RankNorm& norm);
  // Makes the call that was prepared first.
  void call(const Group& group);
  void check(const RankNorm& norm);
  // Compares all bytes of every tensor.
  friend bool operator==(const HostNorm& a, const HostNorm& b) {
    return std::ranges::equal(a.storage_, b.storage_, same_bytes, &AlignedBytes::span, &AlignedBytes::span);
  }

 private:
  std::span<std::byte> storage(int tensor) { return storage_[tensor].span(); }
  const RankNorm& first_;
  AlignedBytes storage_[kNormTensors];
};

// Makes the call on a CPU rank, and checks its outputs and everything around them.
void run_on_cpu_rank(const Group& group, const Norm& norm);

// Shapes, layouts and outputs of every kind, drawn from a seed.
std::vector<Norm> mixed_norms(int count, std::uint32_t seed);

struct RejectedNorm {
  std::string part;  // of the message
  AllReduceRmsNormArgs args;
};
// `memory`: 16 KiB that a call could use.
std::vector<RejectedNorm> rejected_norms(std::byte* memory);

}  // namespace weft::test
