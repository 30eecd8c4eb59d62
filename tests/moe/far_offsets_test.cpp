// Dispatch and combine on hand-made windows in which rows lie past 4 GiB, into outputs of which the same is true, or of
// whose scales it is.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "algorithms/moe_rows.hpp"
#include "core/exchange_shape.hpp"
#include "executors/executor.hpp"
#include "support/far.hpp"
#include "support/moe.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "team/cpu_thread.hpp"

namespace weft::detail {
namespace {

using test::Sparse;

constexpr std::uint32_t kRanks = 3, kTokens = 2, kGeneration = 1;
constexpr std::uint32_t kColumns = 1u << 20;

// Each token's two experts have different ranks. Of each rank's experts four get tokens, the first and the last two.
struct FarCase {
  const char* name;
  RowLayout layout;
  RowType type = RowType::bf16;
  RowCast cast = RowCast::none;
  ScaleOrder scale_order = ScaleOrder::rows;
  std::uint32_t scale_bytes = 0;
  std::uint32_t local = 4;  // experts of a rank
  std::uint32_t top_k = 2, capacity = 0;

  bool has_scales() const { return cast != RowCast::none || scale_bytes != 0; }
  std::uint64_t input_bytes() const { return std::uint64_t{kColumns} * (type == RowType::bf16 ? 2 : 1); }
  std::uint64_t output_bytes() const { return std::uint64_t{kColumns} * (has_scales() ? 1 : 2); }
  ExchangeArgs args() const {
    return {.tokens = 1024,
            .hidden = kColumns,
            .experts = kRanks * local,
            .top_k = top_k,
            .type = type,
            .cast = cast,
            .scale_order = scale_order,
            .scale_bytes = scale_bytes,
            .layout = layout,
            .alignment = layout == RowLayout::expert_contiguous ? 1024u : 1u,
            .capacity = capacity,
            .weighted = false,
            .generations = 1};
  }
  std::uint32_t expert(std::uint32_t call, std::uint32_t rank, std::uint32_t token, std::uint32_t k) const {
    const std::uint32_t number = (rank * kTokens + token + call) % (kRanks * kTokens), one = number / kRanks * 2 + k;
    return (number + k) % kRanks * local + (one < 2 ? one : local - 4 + one);
  }
  // Where the only row of an expert, or the row of a token lies: blocks of experts, and multiples of the alignment, are
  // far apart, and so are senders' rows, here as in windows.
  std::uint64_t row(const ExchangeShape& shape, std::uint32_t of, std::uint32_t source, std::uint32_t token) const {
    if (layout == RowLayout::expert_masked) return std::uint64_t{of} * shape.capacity;
    if (layout == RowLayout::rank_major) return std::uint64_t{source} * shape.tokens + token;
    return std::uint64_t{of < 2 ? of : of + 4 - local} * shape.alignment;
  }
};

struct FarChannel {
  Channel channel{};
  LocalState local{};
};

struct ExchangeRank {
  ExchangeRank(std::uint32_t number, const FarCase& far)
      : args(far.args()),
        rank(number),
        map(map_experts(kRanks, args)),
        shape(make_shape(kRanks, number, args, map)),
        layout(make_exchange_layout(kRanks, shape)),
        window(kWindowHeaderBytes + layout.dispatch_bytes + layout.combine_bytes),
        tables(RoutingTables::bytes(kRanks, shape)),
        output(shape.rows * far.output_bytes()),
        output_scales(shape.rows * test::output_scale_bytes(args) + 1),
        input(kTokens * far.input_bytes()),
        result(kTokens * kColumns * 2) {
    for (FarChannel* half : {&dispatch, &combine}) {
      half->channel.rank = half->channel.world_rank = rank;
      half->channel.size = half->channel.world_size = kRanks;
      half->channel.deadline_ns = 20'000'000'000;
      half->channel.claim = claim;
      half->channel.abort = &abort;
      half->channel.record = record;
      half->local.admit(kGeneration);
      half->local.begin_at(1);
    }
    // What tokens may touch goes to rest; nothing else of the window is ever touched.
    std::byte* const region = window.data() + kWindowHeaderBytes;
    std::memset(region + layout.counts, 0xff, layout.records - layout.counts);
    for (std::uint64_t slot = 0; slot < kBanks * kRanks; ++slot) {
      for (std::uint64_t token = 0; token < kTokens; ++token) {
        const std::uint64_t row = slot * shape.tokens + token;
        std::memset(region + layout.rows + row * shape.row_packs * sizeof(Pack), 0xff, shape.row_packs * sizeof(Pack));
        std::memset(region + layout.dispatch_bytes + layout.results + row * kColumns * 2, 0xff, kColumns * 2);
      }
    }
  }

  ExchangeView view() {
    return {.shape = shape,
            .layout = layout,
            .homes = map.homes.data(),
            .first_replica = nullptr,
            .tables = RoutingTables::at(&routing_header, tables.data(), kRanks, shape)};
  }
  void run(FarChannel& half, const MoeOperation& operation) {
    run_on_cpu({.call = make_call(half.channel, &half.channel, &half.local, kGeneration, 77), .operation = operation},
               nullptr);
    if (record->complete != 0) throw std::runtime_error("the call failed");
  }

  ExchangeArgs args;
  std::uint32_t rank;
  ExpertMap map;
  ExchangeShape shape;
  ExchangeLayout layout;
  Sparse window, tables, output, output_scales, input, result;
  RoutingHeader routing_header{};
  FarChannel dispatch, combine;
  FaultRecord record[detail::kFaultKinds] = {};
  std::uint32_t claim[detail::kFaultKinds] = {}, abort = 0;
};

// Which element, or scale, of which row: no two rows have the same.
std::uint32_t number_of(std::uint32_t call, std::uint32_t rank, std::uint32_t token, std::uint64_t i) {
  return static_cast<std::uint32_t>(i / 97 + i) + call * 31 + rank * 11 + token * 5;
}
// bf16 between 1 and 2.
std::uint16_t element(std::uint32_t number) {
  return static_cast<std::uint16_t>(0x3f80u | (number & 0x7fu));
}
// A normal number of e4m3 above 0. Of the columns of one scale the first is the largest number, so that what is cast
// comes out of it as it went in.
std::uint32_t e4m3(std::uint32_t number, std::uint64_t i) {
  return i % kScaleColumns == 0 ? 0x7e : 0x08 + number % 0x76;
}
// Of the scale, a power of two.
std::uint32_t exponent(std::uint32_t number) {
  return 120 + number % 16;
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
  for (std::size_t i = 0; i < test::sent_scale_bytes(mine.args) / 4; ++i) {
    const std::uint32_t number = number_of(call, rank, token, i);
    const std::uint32_t wanted = far.cast == RowCast::none ? number * 0x9e3779b1u : exponent(number) << 23;
    std::uint32_t word = 0;
    std::memcpy(
        &word,
        mine.output_scales.data() + test::scale_place(mine.args, mine.shape.capacity, mine.shape.rows, row, 4 * i), 4);
    if (word != wanted) throw std::runtime_error("a scale of the output is wrong");
  }
}

class MoeFarOffsets : public testing::TestWithParam<FarCase> {};
constexpr std::uint32_t kMostScales = 4 * kColumns;
// Sanitized, one of each layout, as each case writes tens of thousands of rows.
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
                              .capacity = 49152}};
  if (test::kSanitized) return cases;
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
  // Columns are as long as all experts' room, of which few rows are used.
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
  const ExchangeArgs args = far.args();
  std::vector<std::unique_ptr<ExchangeRank>> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<ExchangeRank>(rank, far));
  }
  for (auto& mine : ranks) {
    for (std::uint32_t peer = 0; peer < kRanks; ++peer) {
      std::byte* const window = ranks[peer]->window.data();
      for (FarChannel* half : {&mine->dispatch, &mine->combine}) {
        half->channel.member[peer] = peer;
        half->channel.window[peer] = window;
        half->channel.region[peer] = window + kWindowHeaderBytes;
      }
      mine->combine.channel.region[peer] += mine->layout.dispatch_bytes;
    }
  }
  const ExchangeShape& shape = ranks[0]->shape;
  const std::uint64_t last = far.row(shape, far.local - 1, kRanks - 1, 0);
  ASSERT_GT(ranks[0]->layout.rows + 5 * args.tokens * std::uint64_t{shape.row_packs} * sizeof(Pack),
            std::uint64_t{5} << 30);
  ASSERT_GE(far.has_scales()
                ? test::scale_place(args, shape.capacity, shape.rows, last, test::sent_scale_bytes(args) - 4)
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
      mine.run(
          mine.dispatch,
          DispatchOperation{.work = {.exchange = mine.view(),
                                     .part = Part::whole,
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
                                     .local_ids = args.layout == RowLayout::rank_major ? local_ids.data() : nullptr,
                                     .local_weights = nullptr},
                            .type = args.type});
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
      // Experts that give back what they got: x + x, which bf16 holds.
      mine.run(mine.combine, CombineOperation{.work = {.exchange = mine.view(),
                                                       .part = Part::whole,
                                                       .senders = 0,
                                                       .pairs = true,
                                                       .input = mine.output.data(),
                                                       .residual = nullptr,
                                                       .output = mine.result.data(),
                                                       .source_wait_ns = nullptr,
                                                       .dispatch_admitted = mine.dispatch.local.admitted},
                                              .type = DataType::bf16,
                                              .ranks = kRanks});
      for (std::uint64_t i = 0; i < kTokens * args.hidden; ++i) {
        const std::uint32_t token = static_cast<std::uint32_t>(i / args.hidden);
        if (result[i] == element(number_of(call, rank, token, i % args.hidden)) + 0x80u) continue;
        throw std::runtime_error("a combined row is wrong");
      }
    }
  }));
}

// Places of scales are counted in numbers, of which more than 2^32 lie in front. Rows are short here, as nothing of
// this depends on their bytes.
template <ScaleOrder order>
void expect_a_far_scale(RowCast cast) {
  using Row = CastRow<DataType::bf16, order>;
  const ExchangeArgs args{.hidden = kColumns, .cast = cast, .scale_order = order};
  ExchangeShape shape{};
  shape.layout = args.layout;
  shape.cast = cast;
  shape.groups = kColumns / kScaleColumns;
  shape.capacity = 1u << 20;
  shape.columns = kScaleColumns;
  shape.scale_columns = plan_columns(shape);
  const std::uint32_t row = 3 * shape.capacity + 5, group = shape.groups - 2, size = cast == RowCast::fp8 ? 4 : 1;
  const std::size_t wanted = test::scale_place(args, shape.capacity, 0, row, std::size_t{group} * size);
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
  EXPECT_EQ(got, cast == RowCast::fp8 ? 130u << 23 : 130u) << name(order);
}

TEST(MoeFarScales, PlacesPastTwoToThe32) {
  for (const RowCast cast : {RowCast::fp8, RowCast::fp8_ue8m0}) {
    expect_a_far_scale<ScaleOrder::rows>(cast);
    expect_a_far_scale<ScaleOrder::columns>(cast);
  }
}

}  // namespace
}  // namespace weft::detail
