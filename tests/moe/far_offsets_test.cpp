// Dispatch and combine on hand-made windows in which rows lie past 4 GiB, into outputs of which the same is true.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

#include "core/exchange_shape.hpp"
#include "executors/executor.hpp"
#include "support/far.hpp"
#include "support/ranks.hpp"

namespace weft::detail {
namespace {

using test::Sparse;

constexpr std::uint32_t kRanks = 3, kTokens = 2, kGeneration = 1;
constexpr std::uint64_t kRowBytes = std::uint64_t{2} << 20;
constexpr std::uint32_t kLocal = 4;  // experts of a rank

ExchangeArgs far_args(RowLayout layout) {
  return {.tokens = 1024,
          .hidden = kRowBytes / 2,
          .experts = kRanks * kLocal,
          .top_k = 2,
          .layout = layout,
          .alignment = layout == RowLayout::expert_contiguous ? 1024u : 1u,
          .weighted = false,
          .generations = 1};
}

struct FarChannel {
  Channel channel{};
  LocalState local{};
};

struct ExchangeRank {
  ExchangeRank(std::uint32_t number, const ExchangeArgs& args)
      : rank(number),
        map(map_experts(kRanks, args)),
        shape(make_shape(kRanks, number, args, map)),
        layout(make_exchange_layout(kRanks, shape)),
        window(kWindowHeaderBytes + layout.dispatch_bytes + layout.combine_bytes),
        tables(RoutingTables::bytes(kRanks, shape)),
        output(shape.rows * kRowBytes),
        input(kTokens * kRowBytes),
        result(kTokens * kRowBytes) {
    for (FarChannel* half : {&dispatch, &combine}) {
      half->channel.rank = half->channel.world_rank = rank;
      half->channel.size = half->channel.world_size = kRanks;
      half->channel.deadline_ns = 20'000'000'000;
      half->channel.claim = &claim;
      half->channel.abort = &abort;
      half->channel.record = &record;
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
        std::memset(region + layout.dispatch_bytes + layout.results + row * kRowBytes, 0xff, kRowBytes);
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
    if (record.complete != 0) throw std::runtime_error("the call failed");
  }

  std::uint32_t rank;
  ExpertMap map;
  ExchangeShape shape;
  ExchangeLayout layout;
  Sparse window, tables, output, input, result;
  RoutingHeader routing_header{};
  FarChannel dispatch, combine;
  FaultRecord record{};
  std::uint32_t claim = 0, abort = 0;
};

// bf16 between 1 and 2, of which no two rows have the same.
std::uint16_t element(std::uint32_t call, std::uint32_t rank, std::uint32_t token, std::uint64_t i) {
  return static_cast<std::uint16_t>(0x3f80u | ((i / 97 + call * 31 + rank * 11 + token * 5 + i) & 0x7fu));
}

class MoeFarOffsets : public testing::TestWithParam<RowLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, MoeFarOffsets,
                         testing::Values(RowLayout::expert_masked, RowLayout::expert_contiguous,
                                         RowLayout::rank_major));

// Each token's two experts have different ranks, and every expert of every rank gets one token.
std::uint32_t far_expert(std::uint32_t call, std::uint32_t rank, std::uint32_t token, std::uint32_t k) {
  const std::uint32_t number = (rank * kTokens + token + call) % (kRanks * kTokens);
  return (number + k) % kRanks * kLocal + number / kRanks * 2 + k;
}

TEST_P(MoeFarOffsets, RowsOfWindowsAndOutputs) {
  const ExchangeArgs args = far_args(GetParam());
  std::vector<std::unique_ptr<ExchangeRank>> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<ExchangeRank>(rank, args));
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
  // Where an expert's only row lies: blocks of experts, and multiples of the alignment, are far apart, and so are
  // senders' rows, here as in windows.
  const auto row_of = [&](const ExchangeRank& mine, std::uint32_t local, std::uint32_t source, std::uint32_t token) {
    if (args.layout == RowLayout::expert_masked) return std::uint64_t{local} * mine.shape.capacity;
    if (args.layout == RowLayout::expert_contiguous) return std::uint64_t{local} * args.alignment;
    return std::uint64_t{source} * args.tokens + token;
  };
  ASSERT_GT(ranks[0]->layout.rows + 5 * args.tokens * kRowBytes, std::uint64_t{10} << 30);
  ASSERT_GE(row_of(*ranks[0], kLocal - 1, kRanks - 1, 0) * kRowBytes, std::uint64_t{1} << 32);

  test::expect_no_errors(test::run_ranks(kRanks, [&](int number) {
    const auto rank = static_cast<std::uint32_t>(number);
    ExchangeRank& mine = *ranks[rank];
    auto* const input = reinterpret_cast<std::uint16_t*>(mine.input.data());
    const auto* const result = reinterpret_cast<const std::uint16_t*>(mine.result.data());
    const auto* const output = reinterpret_cast<const std::uint16_t*>(mine.output.data());
    for (std::uint32_t call = 0; call < 3; ++call) {
      std::vector<std::int32_t> ids, counts(kLocal), offsets(kLocal + 1), source_tokens(kRanks);
      std::vector<std::int32_t> local_ids(std::size_t{kRanks} * args.tokens * args.top_k);
      for (std::uint32_t token = 0; token < kTokens; ++token) {
        for (std::uint32_t k = 0; k < args.top_k; ++k) {
          ids.push_back(static_cast<std::int32_t>(far_expert(call, rank, token, k)));
        }
        for (std::uint64_t i = 0; i < args.hidden; ++i) {
          input[token * args.hidden + i] = element(call, rank, token, i);
        }
      }
      mine.run(
          mine.dispatch,
          DispatchOperation{.work = {.exchange = mine.view(),
                                     .part = Part::whole,
                                     .input = input,
                                     .scales = nullptr,
                                     .ids = ids.data(),
                                     .weights = nullptr,
                                     .tokens = kTokens,
                                     .senders = 0,
                                     .wide_ids = false,
                                     .discard = true,
                                     .output = mine.output.data(),
                                     .output_scales = nullptr,
                                     .counts = counts.data(),
                                     .offsets = args.layout == RowLayout::expert_contiguous ? offsets.data() : nullptr,
                                     .sources = nullptr,
                                     .source_tokens = source_tokens.data(),
                                     .source_wait_ns = nullptr,
                                     .local_ids = args.layout == RowLayout::rank_major ? local_ids.data() : nullptr,
                                     .local_weights = nullptr},
                            .type = RowType::bf16});
      for (std::uint32_t source = 0; source < kRanks; ++source) {
        for (std::uint32_t token = 0; token < kTokens; ++token) {
          for (std::uint32_t k = 0; k < args.top_k; ++k) {
            const ExpertHome home = mine.map.homes[far_expert(call, source, token, k)];
            if (home.rank != rank) continue;
            const std::uint64_t row = row_of(mine, home.local, source, token);
            for (std::uint64_t i = 0; i < args.hidden; ++i) {
              if (output[row * args.hidden + i] == element(call, source, token, i)) continue;
              throw std::runtime_error("a row of the output is wrong");
            }
          }
        }
      }
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
                                              .type = DataType::bf16});
      for (std::uint64_t i = 0; i < kTokens * args.hidden; ++i) {
        const std::uint32_t token = static_cast<std::uint32_t>(i / args.hidden);
        if (result[i] == element(call, rank, token, i % args.hidden) + 0x80u) continue;
        throw std::runtime_error("a combined row is wrong");
      }
    }
  }));
}

}  // namespace
}  // namespace weft::detail
