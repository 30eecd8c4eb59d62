// Dispatch and combine on hand-made windows with rows past 4 GiB. Rows or scales of the outputs lie past 4 GiB, too.
#include <gtest/gtest.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "kernel/executor.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "ops/moe/moe_rows.hpp"
#include "support/far_moe.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {
namespace {

using namespace far;

// A normal number of e4m3 above 0. The first column of each scale has the largest number, so a cast returns exactly its
// input.
std::uint32_t e4m3(std::uint32_t number, std::uint64_t i) {
  return i % kScaleColumns == 0 ? 0x7e : 0x08 + number % 0x76;
}
// The exponent of a scale, a power of two.
std::uint32_t exponent(std::uint32_t number) {
  return 120 + number % 16;
}

void run(ExchangeRank& mine, FarChannel& half, const BoundKernel& bound) {
  run_on_cpu({.call = mine.call(half), .bound = bound}, nullptr);
  if (mine.record->complete != 0) throw std::runtime_error("the call failed");
}

void fill_row(const FarCase& far, std::byte* to, std::byte* scales, std::uint32_t call, std::uint32_t rank,
              std::uint32_t token) {
  for (std::uint64_t i = 0; i < kColumns; ++i) {
    const std::uint32_t number = number_of(call, rank, token, i), small = e4m3(number, i);
    const std::uint32_t scale = exponent(number_of(call, rank, token, i / kScaleColumns));
    const auto scaled = static_cast<std::uint16_t>(((scale - 7) << 7) + (small << 4));  // as bf16
    const std::uint16_t bits = far.cast == RowCast::none ? element(number) : scaled;
    if (far.type == RowType::fp8) to[i] = static_cast<std::byte>(small);
    if (far.type == RowType::bf16) std::memcpy(to + 2 * i, &bits, 2);
  }
  for (std::uint32_t i = 0; i < far.scale_bytes / 4; ++i) {
    const std::uint32_t word = number_of(call, rank, token, i) * 0x9e3779b1u;
    std::memcpy(scales + std::size_t{4} * i, &word, 4);
  }
}

void expect_row(const FarCase& far, const ExchangeRank& mine, std::uint64_t row, std::uint32_t call, std::uint32_t rank,
                std::uint32_t token) {
  const std::byte* const got = mine.output.data() + row * far.output_bytes();
  for (std::uint64_t i = 0; i < kColumns; ++i) {
    const std::uint32_t number = number_of(call, rank, token, i);
    std::uint16_t bits = 0;
    if (!far.has_scales()) std::memcpy(&bits, got + 2 * i, 2);
    if (far.has_scales() ? got[i] == static_cast<std::byte>(e4m3(number, i)) : bits == element(number)) continue;
    throw std::runtime_error("a row of the output is wrong");
  }
  for (std::size_t i = 0; i < oracle::MoeRules(mine.args).arriving_scale_bytes() / 4; ++i) {
    const std::uint32_t number = number_of(call, rank, token, i);
    const std::uint32_t wanted = far.cast == RowCast::none ? number * 0x9e3779b1u : exponent(number) << 23;
    std::uint32_t word = 0;
    std::memcpy(
        &word,
        mine.output_scales.data() + oracle::scale_place(mine.args, mine.shape.capacity, mine.shape.rows, row, 4 * i),
        4);
    if (word != wanted) throw std::runtime_error("a scale of the output is wrong");
  }
}

class MoeFarOffsets : public testing::TestWithParam<FarCase> {};
constexpr std::uint32_t kMostScales = 4 * kColumns;
// Under sanitizers one case of each layout: each case writes tens of thousands of rows.
std::vector<FarCase> far_cases() {
  std::vector<FarCase> cases{{.name = "Contiguous", .layout = RowLayout::expert_contiguous},
                             {.name = "RankMajorWithScales",
                              .layout = RowLayout::rank_major,
                              .type = RowType::fp8,
                              .scale_bytes = kMostScales},
                             {.name = "MaskedCastToColumns",
                              .layout = RowLayout::expert_masked,
                              .cast = RowCast::fp8,
                              .scale_order = ScaleOrder::columns,
                              .top_k = 16,
                              .capacity = 49152},
                             {.name = "ContiguousByTheRing", .layout = RowLayout::expert_contiguous, .ring = true}};
  if (test::kSanitized) return cases;
  cases.push_back({.name = "RankMajorWithScalesByTheRing",
                   .layout = RowLayout::rank_major,
                   .type = RowType::fp8,
                   .scale_bytes = kMostScales,
                   .ring = true});
  cases.push_back({.name = "Masked", .layout = RowLayout::expert_masked});
  cases.push_back({.name = "RankMajor", .layout = RowLayout::rank_major});
  cases.push_back({.name = "MaskedWithScales",
                   .layout = RowLayout::expert_masked,
                   .type = RowType::fp8,
                   .scale_bytes = kMostScales});
  cases.push_back({.name = "ContiguousWithScales",
                   .layout = RowLayout::expert_contiguous,
                   .type = RowType::fp8,
                   .scale_bytes = kMostScales});
  cases.push_back(
      {.name = "MaskedCast", .layout = RowLayout::expert_masked, .cast = RowCast::fp8, .top_k = 16, .capacity = 49152});
  // Columns are as long as all experts' room, and use few of its rows.
  cases.push_back({.name = "ContiguousCastToColumns",
                   .layout = RowLayout::expert_contiguous,
                   .cast = RowCast::fp8,
                   .scale_order = ScaleOrder::columns,
                   .local = 20,
                   .top_k = 32,
                   .capacity = 159684});
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Cases, MoeFarOffsets, testing::ValuesIn(far_cases()),
                         [](const auto& info) { return info.param.name; });

TEST_P(MoeFarOffsets, RowsOfWindowsAndOutputs) {
  const FarCase far = GetParam();
  const MoeExchangeArgs args = far.args();
  const auto ranks = exchange_ranks(far, 20'000'000'000);
  const ExchangeShape& shape = ranks[0]->shape;
  const std::uint64_t last = far.row(shape, far.local - 1, kRanks - 1, 0);
  ASSERT_GT(ranks[0]->last_row(), std::uint64_t{5} << 30);
  ASSERT_GE(far.has_scales() ? oracle::scale_place(args, shape.capacity, shape.rows, last,
                                                   oracle::MoeRules(args).arriving_scale_bytes() - 4)
                             : last * far.output_bytes(),
            std::uint64_t{1} << 32);

  test::expect_no_errors(test::run_ranks(kRanks, [&](int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    ExchangeRank& mine = *ranks[rank];
    const auto* const result = reinterpret_cast<const std::uint16_t*>(mine.result.data());
    std::vector<std::byte> scales(std::size_t{kTokens} * args.scale_bytes);
    for (std::uint32_t call = 0; call < 3; ++call) {
      std::vector<std::int32_t> ids, counts(far.local), offsets(far.local + 1), source_tokens(kRanks);
      std::vector<std::int32_t> local_ids(std::size_t{kRanks} * args.tokens * args.top_k);
      for (std::uint32_t token = 0; token < kTokens; ++token) {
        for (std::uint32_t k = 0; k < args.top_k; ++k) {
          ids.push_back(k < 2 ? static_cast<std::int32_t>(far.expert(call, rank, token, k)) : -1);
        }
        fill_row(far, mine.input.data() + token * far.input_bytes(),
                 scales.data() + std::size_t{token} * args.scale_bytes, call, rank, token);
      }
      run(mine, mine.dispatch,
          find_kernel(DispatchQuery{args.type, mine.shape.cast, mine.shape.scale_order, far.ring})
              .with({.exchange = mine.view(),
                     .phases = kJoined,
                     .input = mine.input.data(),
                     .scales = scales.data(),
                     .ids = ids.data(),
                     .weights = nullptr,
                     .tokens = kTokens,
                     .senders = 0,
                     .wide_ids = false,
                     .discard = true,
                     .output = mine.output.data(),
                     .output_scales = mine.output_scales.data(),
                     .counts = counts.data(),
                     .offsets = args.layout == RowLayout::expert_contiguous ? offsets.data() : nullptr,
                     .sources = nullptr,
                     .source_tokens = source_tokens.data(),
                     .source_wait_ns = nullptr,
                     .host_counts = nullptr,
                     .local_ids = args.layout == RowLayout::rank_major ? local_ids.data() : nullptr,
                     .local_weights = nullptr}));
      for (std::uint32_t source = 0; source < kRanks; ++source) {
        for (std::uint32_t token = 0; token < kTokens; ++token) {
          for (const std::uint32_t k : {0u, 1u}) {
            const ExpertHome home = mine.map.homes[far.expert(call, source, token, k)];
            if (home.rank != rank) continue;
            expect_row(far, mine, far.row(mine.shape, home.local, source, token), call, source, token);
          }
        }
      }
      if (far.has_scales()) continue;
      // The experts return their input: x + x, which bf16 holds.
      run(mine, mine.combine,
          find_kernel(CombineQuery{DataType::bf16, kRanks, far.ring})
              .with({.exchange = mine.view(),
                     .phases = kJoined,
                     .senders = 0,
                     .pairs = true,
                     .input = mine.output.data(),
                     .residual = nullptr,
                     .output = mine.result.data(),
                     .source_wait_ns = nullptr,
                     .dispatch_admitted = mine.dispatch.local.admitted,
                     .late = {}}));
      for (std::uint64_t i = 0; i < kTokens * args.hidden; ++i) {
        const std::uint32_t token = static_cast<std::uint32_t>(i / args.hidden);
        if (result[i] == element(number_of(call, rank, token, i % args.hidden)) + 0x80u) continue;
        throw std::runtime_error("a combined row is wrong");
      }
    }
  }));
  for (const auto& rank : ranks) EXPECT_FALSE(rank->strayed());
}

// Scales are addressed by their number, and more than 2^32 of them lie in front. Rows are short here, since this does
// not depend on their bytes.
template <ScaleOrder order>
void expect_a_far_scale(RowCast cast) {
  using Row = CastRow<DataType::bf16, order>;
  const MoeExchangeArgs args{.hidden = kColumns, .cast = cast, .scale_order = order};
  ExchangeShape shape{};
  shape.layout = args.layout;
  shape.cast = cast;
  shape.groups = kColumns / kScaleColumns;
  shape.capacity = 1u << 20;
  shape.columns = kScaleColumns;
  shape.scale_columns = plan_columns(shape);
  const std::uint32_t row = 3 * shape.capacity + 5, group = shape.groups - 2, size = scales_are_bytes(cast) ? 1 : 4;
  const std::size_t wanted = oracle::scale_place(args, shape.capacity, 0, row, std::size_t{group} * size);
  ASSERT_GT(wanted / size, std::size_t{1} << 32);
  const Sparse output(std::size_t{row} * shape.columns + kColumns), scales(wanted + 4096);
  DispatchWork work{};
  work.exchange.shape = shape;
  work.output = output.data();
  work.output_scales = scales.data();
  typename Row::template Moving<CpuThread> moving{};
  moving.scale = 130u << 23;
  const std::uint32_t to[Row::kRowsAtOnce] = {row, kNone, kNone, kNone};
  Row::template put<CpuThread>(work, to, group, moving);
  std::uint32_t got = 0;
  std::memcpy(&got, scales.data() + wanted, size);
  EXPECT_EQ(got, scales_are_bytes(cast) ? 130u : 130u << 23) << name(order);
}

TEST(MoeFarScales, PlacesPastTwoToThe32) {
  for (const RowCast cast : {RowCast::fp8, RowCast::fp8_ue8m0, RowCast::fp8_pow2}) {
    expect_a_far_scale<ScaleOrder::rows>(cast);
    expect_a_far_scale<ScaleOrder::columns>(cast);
  }
}

}  // namespace
}  // namespace weft::detail
