// Ranks of an exchange on hand-made windows with rows past 4 GiB, in address space without memory.
#pragma once

#include <cstring>
#include <memory>
#include <vector>

#include "ops/moe/exchange_shape.hpp"
#include "ops/moe/moe_routing.hpp"
#include "support/far.hpp"
#include "support/moe.hpp"

namespace weft::detail::far {

using test::Sparse;

inline constexpr std::uint32_t kRanks = 3, kTokens = 2, kGeneration = 1;
inline constexpr std::uint32_t kColumns = (1u << 20) + 4096;  // no two rows of a window share their low 32 bits

// Each token's two experts are on different ranks. On each rank four experts get tokens: the first two and the last
// two.
struct FarCase {
  const char* name;
  RowLayout layout;
  RowType type = RowType::bf16;
  RowCast cast = RowCast::none;
  ScaleOrder scale_order = ScaleOrder::rows;
  std::uint32_t scale_bytes = 0;
  std::uint32_t local = 4;  // experts of a rank
  std::uint32_t top_k = 2, capacity = 0;
  bool ring = false;

  bool has_scales() const { return cast != RowCast::none || scale_bytes != 0; }
  std::uint64_t input_bytes() const { return std::uint64_t{kColumns} * (type == RowType::bf16 ? 2 : 1); }
  std::uint64_t output_bytes() const { return std::uint64_t{kColumns} * (has_scales() ? 1 : 2); }
  MoeExchangeArgs args() const {
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
            .handles = 1,
            .path = ring ? RowPath::ring : RowPath::slots,
            .ring_rows = ring ? 1024u : 0u};
  }
  std::uint32_t expert(std::uint32_t call, std::uint32_t rank, std::uint32_t token, std::uint32_t k) const {
    const std::uint32_t number = (rank * kTokens + token + call) % (kRanks * kTokens), one = number / kRanks * 2 + k;
    return (number + k) % kRanks * local + (one < 2 ? one : local - 4 + one);
  }
  // The row of an expert's only token, or of a token. Blocks of experts, multiples of the alignment, and the rows of
  // senders are far apart in outputs, as in windows.
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
  ExchangeRank(std::uint32_t number, const FarCase& far, std::uint64_t deadline_ns)
      : args(far.args()),
        rank(number),
        map(map_experts(kRanks, args)),
        shape(make_shape(kRanks, number, args, map)),
        layout(make_exchange_layout(kRanks, shape)),
        window(kWindowHeaderBytes + layout.dispatch_bytes + layout.combine_bytes),
        tables(RoutingTables::bytes(kRanks, shape)),
        output(shape.rows * far.output_bytes()),
        output_scales(shape.rows * oracle::MoeRules(args).output_scale_bytes() + 1),
        input(kTokens * far.input_bytes()),
        result(kTokens * kColumns * 2) {
    for (FarChannel* half : {&dispatch, &combine}) {
      half->channel.rank = half->channel.world_rank = rank;
      half->channel.size = half->channel.world_size = kRanks;
      half->channel.deadline_ns = deadline_ns;
      half->channel.local = &half->local;
      half->channel.claim = claim;
      half->channel.abort = &abort;
      half->channel.record = record;
      half->local.admit(kGeneration);
      half->local.begin_at(1);
    }
    dispatch.channel.layout = channel_layout(layout.dispatch_bytes, layout, shape);
    combine.channel.layout = channel_layout(layout.combine_bytes, layout, shape);
    // Resets the part of the window that tokens may touch. No other part is ever touched.
    std::byte* const region = window.data() + kWindowHeaderBytes;
    std::memset(region + layout.counts, 0xff, layout.records - layout.counts);
    if (far.ring) return;  // rows have no resting state
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
            .areas = layout.areas(args.path == RowPath::ring),
            .homes = map.homes.data(),
            .first_replica = nullptr,
            .tables = RoutingTables::at(&routing_header, tables.data(), kRanks, shape)};
  }
  Call call(FarChannel& half) { return make_call(half.channel, &half.channel, kGeneration, 77); }
  std::uint64_t row_bytes() const {
    return std::uint64_t{args.path == RowPath::ring ? shape.ring_stride : shape.row_packs} * sizeof(Pack);
  }
  // The rows of few tokens: by slots of each bank and sender, by a ring of each bank.
  std::uint64_t last_row() const {
    const std::uint64_t tokens = args.tokens;
    return args.path == RowPath::ring ? layout.ring_rows + tokens * kRanks * row_bytes()
                                      : layout.rows + 5 * tokens * row_bytes();
  }
  // Whether anything behind the rows of a sender's few tokens was touched. Nothing lies there, but offsets cut to 32
  // bits would lead there.
  bool strayed() const {
    const std::byte* const region = window.data() + kWindowHeaderBytes;
    const bool ring = args.path == RowPath::ring;
    const std::uint64_t together = ring ? kRanks : 1, slots = kBanks * kRanks / together;
    const auto touched = [&](std::uint64_t area, std::uint64_t row_bytes) {
      for (std::uint64_t slot = 0; slot < slots; ++slot) {
        const std::byte* const rows = region + area + slot * shape.tokens * together * row_bytes;
        if (Sparse::touched(rows + kTokens * together * row_bytes, rows + shape.tokens * together * row_bytes - 4096))
          return true;
      }
      return false;
    };
    return touched(ring ? layout.ring_rows : layout.rows, row_bytes()) ||
           touched(layout.dispatch_bytes + (ring ? layout.ring_results : layout.results), std::uint64_t{kColumns} * 2);
  }

  MoeExchangeArgs args;
  std::uint32_t rank;
  ExpertMap map;
  ExchangeShape shape;
  ExchangeLayout layout;
  Sparse window, tables, output, output_scales, input, result;
  RoutingHeader routing_header{};
  FarChannel dispatch, combine;
  FaultRecord record[kFaultKinds] = {};
  std::uint32_t claim[kFaultKinds] = {}, abort = 0;
};

inline std::vector<std::unique_ptr<ExchangeRank>> exchange_ranks(const FarCase& far, std::uint64_t deadline_ns) {
  std::vector<std::unique_ptr<ExchangeRank>> ranks;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    ranks.push_back(std::make_unique<ExchangeRank>(rank, far, deadline_ns));
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
  return ranks;
}

// The number of an element, or scale, of a row: no two rows are equal.
inline std::uint32_t number_of(std::uint32_t call, std::uint32_t rank, std::uint32_t token, std::uint64_t i) {
  return static_cast<std::uint32_t>(i / 97 + i) + call * 31 + rank * 11 + token * 5;
}
// bf16 between 1 and 2.
inline std::uint16_t element(std::uint32_t number) {
  return static_cast<std::uint16_t>(0x3f80u | (number & 0x7fu));
}

}  // namespace weft::detail::far
