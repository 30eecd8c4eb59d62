#include "support/moe_batches.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <tuple>
#include <utility>

namespace weft::test {

MoeExchangeArgs small_exchange() {
  return {.tokens = 6, .hidden = 256, .experts = 8, .top_k = 3};
}

std::vector<Batch> every_kind_of_routing(std::uint32_t ranks) {
  MoeExchangeArgs args = small_exchange();
  args.capacity = ranks * args.tokens * args.top_k;  // a token may name an expert several times
  Batch batch;
  for (const Choice choice : {Choice::uniform, Choice::none, Choice::one_expert, Choice::duplicates, Choice::holes}) {
    batch.push_back({.args = args, .tokens = {6}, .choice = choice, .residual = choice == Choice::holes});
    batch.push_back({.args = args, .tokens = {0, 6, 1, 3}, .choice = choice, .wide_ids = true});
  }
  batch.push_back({.args = args, .tokens = {0}});
  return {batch};
}

std::vector<Batch> rows_of_every_type(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const auto& [type, hidden, scale_bytes] : {std::tuple{RowType::bf16, 8u, 0u},
                                                  {RowType::f16, 2056u, 0u},
                                                  {RowType::fp8, 16u, 4u},
                                                  {RowType::fp8, 4096u, 128u}}) {
    MoeExchangeArgs args = small_exchange();
    args.type = type;
    args.hidden = hidden;
    args.scale_bytes = scale_bytes;
    args.combine_type = type == RowType::f16 ? DataType::f16 : DataType::bf16;
    args.capacity = ranks * args.tokens * args.top_k;
    batches.push_back({{.args = args, .tokens = {6, 2}, .any_bits = true}});
  }
  return batches;
}

std::vector<Batch> rows_of_many_pieces(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const auto& [type, cast, hidden, scale_bytes] : {std::tuple{RowType::bf16, RowCast::fp8, 9344u, 0u},
                                                        {RowType::bf16, RowCast::none, 7168u, 0u},
                                                        {RowType::fp8, RowCast::none, 8192u, 8196u}}) {
    MoeExchangeArgs args = small_exchange();
    args.type = type;
    args.cast = cast;
    args.hidden = hidden;
    args.scale_bytes = scale_bytes;
    args.capacity = ranks * args.tokens * args.top_k;
    batches.push_back({{.args = args, .tokens = {6, 2}}});
  }
  return batches;
}

std::vector<Batch> casts_on_the_way(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const RowType type : {RowType::bf16, RowType::f16}) {
    for (const RowCast cast : {RowCast::fp8, RowCast::fp8_ue8m0, RowCast::fp8_pow2}) {
      // Five scales in a row: two words of bytes, the second nearly empty; and three, a word that is not full.
      for (const auto& [order, groups] :
           {std::pair{ScaleOrder::rows, 5u}, {ScaleOrder::columns, 5u}, {ScaleOrder::columns, 3u}}) {
        MoeExchangeArgs args = small_exchange();
        args.tokens = 8;  // so that columns have a multiple of 4 rows, whatever the ranks
        args.type = type;
        args.cast = cast;
        args.scale_order = order;
        args.hidden = groups * kScaleColumns;
        args.capacity = ranks * args.tokens * args.top_k;
        batches.push_back({{.args = args, .tokens = {5, 6}}, {.args = args, .tokens = {5, 6}, .any_bits = true}});
      }
    }
  }
  return batches;
}

std::vector<Batch> entries_in_tallies(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const auto& [cast, order, hidden] : {std::tuple{RowCast::none, ScaleOrder::rows, 8u},
                                            {RowCast::fp8, ScaleOrder::rows, kScaleColumns},
                                            {RowCast::fp8, ScaleOrder::columns, kScaleColumns}}) {
    MoeExchangeArgs args{.tokens = 400, .hidden = hidden, .experts = 8, .top_k = 8, .cast = cast};
    args.scale_order = order;
    args.capacity = 2 * ranks * args.tokens;  // an expert is named by an eighth of all entries
    Batch& batch = batches.emplace_back();
    batch.push_back({.args = args, .tokens = {400, 383, 384, 1}, .choice = Choice::holes, .wide_ids = true});
    batch.push_back({.args = args, .tokens = {383, 384, 1, 400}});
    if (cast != RowCast::none) continue;  // rows that are cast are counted as others are
    batch.push_back({.args = args, .tokens = {400, 383, 384, 1}});
    batch.push_back({.args = args, .tokens = {192, 191, 192, 1}});
  }
  return in_every_layout(batches, ranks);
}

std::vector<Batch> experts_where_the_caller_wants(std::uint32_t ranks) {
  MoeExchangeArgs args = small_exchange();
  args.experts = 7;  // split as evenly as possible
  std::vector<Batch> batches{{{.args = args, .tokens = {6, 4}}}};
  for (std::uint32_t expert = 0; expert < args.experts; ++expert) {
    args.rank_of_expert.push_back(expert % 3 == 0 ? ranks - 1 : expert % ranks / 2);  // some ranks have none
  }
  batches.push_back({{.args = args, .tokens = {6, 4}}});
  return batches;
}

std::vector<Batch> rows_without_room() {
  MoeExchangeArgs args = small_exchange();
  args.capacity = 2;
  args.overflow = Overflow::drop;
  const auto batch = [](const MoeExchangeArgs& of) -> Batch {
    return {{.args = of, .tokens = {6}},
            {.args = of, .tokens = {6, 0, 3}, .choice = Choice::one_expert},
            {.args = of, .tokens = {1}}};
  };
  MoeExchangeArgs contiguous = args;
  contiguous.layout = RowLayout::expert_contiguous;
  contiguous.alignment = 3;  // the last rows have no room, at any place of an expert
  contiguous.capacity = 7;
  MoeExchangeArgs compact = args;
  compact.layout = RowLayout::rank_compact;  // one source's rows have room, and of another's some
  compact.capacity = 4;
  std::vector<Batch> batches{batch(args), batch(contiguous), batch(compact)};
  // Scales in columns lie beside those of other rows and experts.
  for (MoeExchangeArgs columns : {args, contiguous, compact}) {
    columns.cast = RowCast::fp8_ue8m0;
    columns.scale_order = ScaleOrder::columns;
    columns.hidden = 3 * kScaleColumns;
    columns.capacity = (columns.capacity + 3) / 4 * 4;
    batches.push_back(batch(columns));
  }
  return batches;
}

MoeCase rows_and_a_pad(std::uint32_t capacity) {
  MoeExchangeArgs args = small_exchange();
  args.top_k = 1;
  args.layout = RowLayout::expert_contiguous;
  args.alignment = 4;
  args.capacity = capacity;
  args.rank_of_expert.assign(args.experts, 1);
  return {.args = args, .tokens = {4, 3}, .choice = Choice::one_expert};
}

std::vector<MoeCase> more_rows_than_room() {
  std::vector<MoeCase> cases;
  for (const auto& [layout, capacity, choice] : {std::tuple{RowLayout::expert_masked, 1u, Choice::one_expert},
                                                 {RowLayout::expert_masked, 1u, Choice::uniform},
                                                 {RowLayout::expert_contiguous, 5u, Choice::one_expert},
                                                 {RowLayout::expert_contiguous, 17u, Choice::uniform},
                                                 {RowLayout::rank_compact, 5u, Choice::one_expert},
                                                 {RowLayout::rank_compact, 7u, Choice::uniform}}) {
    MoeExchangeArgs args = small_exchange();
    args.layout = layout;
    args.alignment = layout == RowLayout::expert_contiguous ? 4 : 1;
    args.capacity = capacity;
    args.rank_of_expert.assign(args.experts, 1);
    cases.push_back({.args = args, .tokens = {6}, .choice = choice});
    args.cast = RowCast::fp8;
    args.scale_order = ScaleOrder::columns;
    args.capacity = capacity / 4 * 4 + 4;
    cases.push_back({.args = args, .tokens = {6}, .choice = choice});
  }
  cases.push_back(rows_and_a_pad(7));
  return cases;
}

namespace {

// More tokens than the ring has places.
MoeExchangeArgs small_exchange_on_ring() {
  MoeExchangeArgs args = small_exchange();
  args.tokens = 40;
  args.path = RowPath::ring;
  args.ring_rows = kRingPlaces;
  return args;
}

void add_replicas(std::vector<ReplicaCase>& cases, MoeExchangeArgs with, std::uint32_t ranks) {
  std::vector<std::uint32_t> first;
  MoeExchangeArgs without = with;
  for (std::uint32_t expert = 0; expert < with.experts; ++expert) {
    first.push_back(static_cast<std::uint32_t>(without.rank_of_expert.size()));
    std::vector<std::uint32_t> holders;
    for (std::uint32_t i = 0; i < std::min(expert % 3 + 1, ranks); ++i) holders.push_back((expert + ranks - i) % ranks);
    without.rank_of_expert.insert(without.rank_of_expert.end(), holders.begin(), holders.end());
    with.ranks_of_expert.push_back(holders);
  }
  without.experts = static_cast<std::uint32_t>(without.rank_of_expert.size());
  first.push_back(without.experts);
  const auto translate = [first](std::int64_t id, std::uint32_t rank, std::uint32_t token) -> std::int64_t {
    if (id < 0 || static_cast<std::size_t>(id) + 1 >= first.size()) return -1;
    const auto expert = static_cast<std::size_t>(id);
    return first[expert] + (rank + token) % (first[expert + 1] - first[expert]);
  };
  for (const Batch& batch : in_every_layout(
           {{{.args = without, .tokens = {with.tokens, 4, with.tokens - 1}, .translate = translate}}}, ranks)) {
    with.layout = batch[0].args.layout;
    with.alignment = batch[0].args.alignment;
    with.capacity = batch[0].args.capacity;
    cases.push_back({with, batch[0]});
  }
}

}  // namespace

std::vector<ReplicaCase> replicas_in_turn(std::uint32_t ranks) {
  std::vector<ReplicaCase> cases;
  add_replicas(cases, small_exchange(), ranks);
  add_replicas(cases, small_exchange_on_ring(), ranks);
  return cases;
}

void serve_rounds(ReplicaCase& replicas) {
  replicas.with.ring_rows = replicas.call.args.ring_rows = 0;
}

std::vector<Batch> sums_without_weights(std::uint32_t ranks) {
  MoeExchangeArgs args = small_exchange();
  args.weighted = false;
  args.handles = 3;
  args.capacity = ranks * args.tokens * args.top_k;
  return {{{.args = args, .tokens = {6, 4}},
           {.args = args, .tokens = {0, 6, 1}, .choice = Choice::duplicates, .residual = true},
           {.args = args, .tokens = {5}, .choice = Choice::holes}}};
}

namespace {

// Element i of 8 · 65536: every value of 16 bits at each of the eight places of a pack.
constexpr std::uint32_t counting(std::uint32_t i, std::uint32_t rank) {
  const std::uint32_t fill = i / 65536, at = i % 65536;
  return at / 8 + (at + fill + rank) % 8 * 8192;
}

}  // namespace

std::vector<PreparedMoe> all_bit_patterns() {
  std::vector<PreparedMoe> all;
  for (const RowType type : {RowType::bf16, RowType::f16, RowType::fp8}) {
    // Behind the counting rows, one row of only ones, the wire's resting word.
    constexpr std::uint32_t kRow = 8192, kRows = 8 * 65536 / kRow + 1;
    MoeExchangeArgs args{.tokens = kRows, .hidden = kRow, .experts = 2, .top_k = 1, .type = type};
    if (type == RowType::fp8) args.hidden *= 2;
    for (const Batch& batch : in_every_layout({{{.args = args, .tokens = {kRows}}}}, 2)) {
      PreparedMoe p = prepare(batch[0], 2, 5);
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        for (std::uint32_t i = 0; i < kRows * kRow; ++i)
          put(p.tokens[rank].rows, DataType::bf16, i, i / kRow < kRows - 1 ? counting(i, rank) : 0xffffu);
      }
      all.push_back(std::move(p));
    }
  }
  return all;
}

std::vector<Batch> sums_of_special_values(std::uint32_t ranks) {
  std::vector<Batch> batches;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    for (const bool weighted : {false, true}) {
      MoeExchangeArgs args = small_exchange();
      args.type = type == DataType::bf16 ? RowType::bf16 : RowType::f16;
      args.combine_type = type;
      args.weighted = weighted;
      args.capacity = ranks * args.tokens * args.top_k;
      const MoeCase c{.args = args, .tokens = {6, 4}, .special_results = true};
      batches.push_back({c, c, c});
      batches.back()[1].residual = true;
      batches.back()[2].residual = true;
      batches.back()[2].choice = Choice::none;
    }
  }
  return batches;
}

std::vector<Batch> routings_for_two_graphs(std::uint32_t ranks) {
  constexpr Choice choices[] = {Choice::uniform, Choice::holes, Choice::duplicates, Choice::none, Choice::one_expert};
  std::vector<Batch> batches;
  const std::vector<std::uint32_t> none, payloads{20, 4};
  for (const auto& [cast, beside] : {std::pair{RowCast::none, none}, {RowCast::none, payloads}, {RowCast::fp8, none}}) {
    MoeExchangeArgs args = small_exchange();
    args.tokens = 8;
    args.payload_bytes = beside;
    args.cast = cast;
    args.scale_order = cast == RowCast::none ? ScaleOrder::rows : ScaleOrder::columns;
    args.capacity = ranks * args.tokens * args.top_k;
    batches.emplace_back();
    for (std::uint32_t i = 0; i < 10; ++i) {
      const std::vector<std::uint32_t> even{6, 4, 0, 1}, odd{1, 0, 8, 5};
      batches.back().push_back({.args = args,
                                .tokens = i % 2 == 0 ? even : odd,
                                .choice = choices[i % 5],
                                .residual = cast != RowCast::none});
    }
  }
  return in_every_layout(batches, ranks);
}

std::vector<PreparedMoe> results_of_all_bit_patterns() {
  constexpr std::uint32_t kHidden = 8192, kCounting = 8 * 65536 / kHidden, kTokens = kCounting + 2;
  constexpr auto kSpecial = static_cast<std::uint32_t>(std::size(kSpecialBits));
  static_assert(kSpecial % 2 == 1 && kSpecial * kSpecial * 2 * 4 <= kHidden);
  const auto bits_of_row = [](std::uint32_t rank, std::uint32_t token, std::uint32_t i) {
    if (token < kCounting) return counting(token * kHidden + i, rank);
    if (token > kCounting) return 0xffffu;  // only the wire's resting word
    const std::uint32_t word = i / 2;       // the number of pairs is odd, so each reaches all four words
    return kSpecialBits[i % 2 == 0 ? word % kSpecial : word / kSpecial % kSpecial];
  };
  std::vector<PreparedMoe> all;
  for (const DataType type : {DataType::bf16, DataType::f16}) {
    const MoeExchangeArgs args{
        .tokens = kTokens, .hidden = kHidden, .experts = 2, .top_k = 1, .combine_type = type, .weighted = false};
    for (const Batch& batch : in_every_layout({{{.args = args, .tokens = {kTokens}}}}, 2)) {
      PreparedMoe p = prepare(batch[0], 2, 5);
      for (std::uint32_t expert = 0; expert < args.experts; ++expert) {
        for (std::size_t place = 0; place < p.routing[expert].size(); ++place) {
          const auto [rank, token, weight] = p.routing[expert][place];
          for (std::uint32_t i = 0; i < kHidden; ++i) {
            const std::uint32_t bits = bits_of_row(rank, token, i), magnitude = bits & 0x7fffu;
            put(p.outputs[expert][place], type, i, bits);
            const bool nan = magnitude > (type == DataType::bf16 ? 0x7f80u : 0x7c00u);
            put(p.results[rank], type, std::size_t{token} * kHidden + i, nan ? 0x7fffu : bits);
          }
        }
      }
      all.push_back(std::move(p));
    }
  }
  return all;
}

std::vector<std::vector<PreparedMoe>> fewer_tokens_than_recorded(std::uint32_t ranks) {
  std::vector<std::vector<PreparedMoe>> all;
  const auto all_live = [](const MoeExchangeArgs& args) {
    return Batch{{.args = args, .tokens = {args.tokens}, .any_bits = true}};
  };
  for (const Batch& batch : in_every_layout({all_live(small_exchange()), all_live(small_exchange_on_ring())}, ranks)) {
    std::vector<PreparedMoe>& prepared = all.emplace_back();
    for (const std::uint32_t live : {batch[0].args.tokens, 3u, 0u, batch[0].args.tokens - 1}) {
      MoeCase c = batch[0];
      c.translate = [live](std::int64_t id, std::uint32_t rank, std::uint32_t token) {
        return token < live || (rank == 1 && live > 0) ? id : -1;
      };
      prepared.push_back(prepare(c, ranks, live + 1));
    }
  }
  return all;
}

std::vector<std::pair<Batch, Batch>> batches_that_differ(std::uint32_t ranks) {
  std::vector<std::pair<Batch, Batch>> all;
  for (const Batch& batch : in_every_layout(sums_without_weights(ranks), ranks)) {
    Batch other = batch;
    for (MoeCase& c : other) {
      c.args.top_k = 1;
      c.args.hidden = 64;
      c.args.capacity = 0;
      c.args.weighted = true;
      std::ranges::reverse(c.tokens);
    }
    all.emplace_back(batch, std::move(other));
  }
  return all;
}

void exchange_and_check(const std::vector<Batch>& batches, std::uint32_t ranks, const Config& config, int rounds) {
  for (const Batch& batch : batches) {
    const std::vector<PreparedMoe> prepared = prepare_all(batch, ranks);
    expect_all_well(run_world(static_cast<int>(ranks), config, [&](Communicator& communicator, int number) {
      const auto rank = static_cast<std::uint32_t>(number);
      const MoeExchange exchange = MoeExchange::create(communicator, batch.front().args);
      // Made once: sanitizers give large blocks back to the system, and new pages take most of a test's time.
      std::vector<std::unique_ptr<CpuMoe>> calls;
      for (const PreparedMoe& p : prepared) calls.push_back(std::make_unique<CpuMoe>(exchange, p, rank));
      for (int round = 0; round < rounds; ++round) {
        for (const auto& call : calls) {
          if (round != 0) call->fill();
          exchange_and_check(exchange, *call);
        }
      }
    }));
  }
}

}  // namespace weft::test
