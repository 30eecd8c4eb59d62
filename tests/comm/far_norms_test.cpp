// All-reduces with residual and norm on windows with slots past 4 GiB, and on rows that are 4 GiB apart.
#include <gtest/gtest.h>

#include <cstring>

#include "kernel/executor.hpp"
#include "ops/norm/norm_kernels.hpp"
#include "support/far.hpp"
#include "support/norms.hpp"
#include "support/ranks.hpp"
#include "support/world.hpp"

namespace weft::detail {
namespace {

using test::FarRank;
using test::NormTensor;

constexpr std::size_t kHidden = 64, kRows = 6, kRowBytes = 2 * kHidden;

void expect_right(Algorithm algorithm) {
  const auto ranks = test::far_ranks(20'000'000'000);
  test::expect_no_errors(test::run_ranks(FarRank::kSize, [&](int r) {
    FarRank& mine = *ranks[static_cast<std::size_t>(r)];
    for (std::uint32_t call = 0; call < 5; ++call) {
      const test::RankNorm prepared =
          test::prepare({.tokens = kRows - call % 2, .hidden = kHidden, .seed = call}, FarRank::kSize, r);
      std::vector<Pack> memory[test::kNormTensors];
      for (int tensor = 0; tensor < test::kNormTensors; ++tensor) {
        const test::Bytes& before = prepared.memory[tensor].before;
        memory[tensor].resize(before.size() / sizeof(Pack));
        if (!before.empty()) std::memcpy(memory[tensor].data(), before.data(), before.size());
      }
      const auto bytes_of = [&](int tensor) { return std::as_writable_bytes(std::span(memory[tensor])); };
      const AllReduceRmsNormArgs args =
          test::arguments(prepared, [&](NormTensor tensor) { return bytes_of(tensor).data(); });
      constexpr std::uint64_t stride = kRowBytes / sizeof(Pack);
      NormWork work{};
      work.input = args.input;
      work.residual = args.residual;
      work.residual_output = args.residual_output;
      work.gamma = args.gamma;
      work.output = args.output;
      work.input_stride = work.residual_stride = work.residual_output_stride = work.output_stride = stride;
      work.rows = static_cast<std::uint32_t>(args.tokens);
      work.row_packs = static_cast<std::uint32_t>(stride);
      work.inverse_columns = 1.0f / kHidden;
      work.epsilon = args.epsilon;
      const FusedNormQuery query{.type = args.type, .size = FarRank::kSize, .algorithm = algorithm, .casts = false};
      run_on_cpu({.call = mine.call(77), .bound = find_kernel(query).with(work)}, nullptr);
      if (mine.record->complete != 0) throw std::runtime_error("the call failed");
      for (int tensor = 0; tensor < test::kNormTensors; ++tensor)
        test::expect_after(prepared, static_cast<NormTensor>(tensor), bytes_of(tensor));
    }
  }));
  for (const auto& rank : ranks) EXPECT_FALSE(rank->strayed());
}

TEST(FarNorms, OneShotSlots) {
  expect_right(Algorithm::one_shot);
}

TEST(FarNorms, TwoShotSlots) {
  expect_right(Algorithm::two_shot);
}

constexpr std::size_t kLong = 264, kLongBytes = 2 * kLong;  // a row longer than the smallest buffers

// A tensor whose rows are more than 4 GiB apart, in address space without memory. With offsets cut to 32 bits, row k
// would begin k MiB behind the first one.
class FarRows {
 public:
  static constexpr std::size_t kStride = (std::size_t{1} << 32) + (1u << 20);

  FarRows() : memory_(kRows * kStride) {}
  std::byte* data() const { return memory_.data(); }
  std::byte* row(std::size_t row) const { return data() + row * kStride; }
  void put(const std::vector<std::byte>& rows) const {
    for (std::size_t r = 0; r < kRows; ++r) std::memcpy(row(r), rows.data() + r * kLongBytes, kLongBytes);
  }
  std::vector<std::byte> take(std::size_t bytes) const {
    std::vector<std::byte> rows;
    for (std::size_t r = 0; r < kRows; ++r) rows.insert(rows.end(), row(r), row(r) + bytes);
    return rows;
  }
  // Whether a store touched anything between the first page and the second row.
  bool strayed() const { return test::Sparse::touched(data() + 4096, data() + (kStride - 4096)); }

 private:
  test::Sparse memory_;
};

// A call with rows side by side must give the same bits, in one kernel, one kernel per row, and in pieces of rows. The
// host computes the places of these pieces.
TEST(FarNorms, RowsPastFourGigabytes) {
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const std::size_t buffer : {kRows * kLongBytes, kLongBytes, std::size_t{256}}) {
      Config config = test::cpu_config();
      config.one_shot_bytes = config.two_shot_bytes = buffer;
      test::expect_all_well(test::run_world(2, config, [&](Communicator& communicator, int rank) {
        const auto filled = [&](std::uint32_t seed) {
          alignas(16) static thread_local std::byte memory[4][kRows * kLongBytes];
          const test::Case content{.count = kRows * kLong, .fill = test::Fill::random, .seed = seed};
          const test::Bytes bytes = test::input_of(content, seed == 0 ? rank : 0);
          std::ranges::copy(bytes, memory[seed]);
          return memory[seed];
        };
        std::byte *const input = filled(0), *const residual = filled(1), *const gamma = filled(2),
                         *const output = filled(3);
        const FarRows far_input, far_residual, far_output, far_fp8;
        far_input.put({input, input + kRows * kLongBytes});
        far_residual.put({residual, residual + kRows * kLongBytes});
        std::vector<std::uint64_t> fp8(kRows * kLong / 8);
        std::vector<float> scales(2 * kRows);
        AllReduceRmsNormArgs args{.input = input,
                                  .residual = residual,
                                  .residual_output = residual,
                                  .gamma = gamma,
                                  .output = output,
                                  .fp8 = {.rows = fp8.data(), .scales = scales.data()},
                                  .tokens = kRows,
                                  .hidden = kLong,
                                  .algorithm = algorithm};
        all_reduce_rms_norm(communicator, args);
        args.input = far_input.data();
        args.residual = args.residual_output = far_residual.data();
        args.output = far_output.data();
        args.fp8 = {.rows = far_fp8.data(), .stride = FarRows::kStride, .scales = scales.data() + kRows};
        args.input_stride = args.residual_stride = args.residual_output_stride = args.output_stride =
            FarRows::kStride / 2;
        all_reduce_rms_norm(communicator, args);
        const auto same = [](const std::vector<std::byte>& far, const void* near) {
          return std::memcmp(far.data(), near, far.size()) == 0;
        };
        EXPECT_TRUE(same(far_residual.take(kLongBytes), residual));
        EXPECT_TRUE(same(far_output.take(kLongBytes), output));
        EXPECT_TRUE(same(far_fp8.take(kLong), fp8.data()));
        EXPECT_TRUE(std::equal(scales.begin(), scales.begin() + kRows, scales.begin() + kRows));
        for (const FarRows* tensor : {&far_input, &far_residual, &far_output, &far_fp8})
          EXPECT_FALSE(tensor->strayed());
      }));
    }
  }
}

}  // namespace
}  // namespace weft::detail
