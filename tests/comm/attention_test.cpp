// What a layer with data-parallel attention does, in the groups of a ParallelLayout: the chain of docs/dp_attention.md,
// and ragged calls of several groups at the same time.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "support/moves.hpp"
#include "support/sanitized.hpp"
#include "support/world.hpp"
#include "weft/parallel.hpp"
#include "weft/recording.hpp"

namespace weft::test {
namespace {

constexpr std::size_t kWidth = 6;         // elements of a row
constexpr std::size_t kGroupTokens = 12;  // that a group has room for: every layout below divides it
constexpr float kGarbage = 1e30f;         // in memory that nobody has written

// What is exact in any order of sums: small whole numbers.
float part_of(int rank, std::size_t group, std::size_t token, std::size_t column) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 5 + group * 3 + token * 7 + column) % 17);
}

struct Layer {
  ParallelLayout layout;
  // fixed: each group's slot has room for all that it may have; given: for as much as the batch says; dense: tokens lie
  // side by side.
  SlotKind slot;
  Split split;
};

// One rank's memory and calls. Capacities do not depend on what a batch has, so that one recording serves all.
class LayerRank {
 public:
  LayerRank(const Layer& layer, Communicator& world)
      : layer_(layer),
        world_(world),
        rank_(world.rank()),
        group_(static_cast<std::size_t>(layer.layout.attn_dp_rank(rank_))),
        attention_(world.split(layer.layout.attn_tp_color(rank_))),
        across_(world.split(layer.layout.attn_dp_color(rank_))),
        tokens_(1),
        counts_(static_cast<std::size_t>(layer.layout.tp)),
        lengths_(counts_.size()),
        partial_(kGroupTokens * kWidth),
        shard_(kGroupTokens * kWidth),
        all_(static_cast<std::size_t>(layer.layout.dp) * kGroupTokens * kWidth),
        sums_(all_.size()),
        slot_(shard_.size()),
        result_(kGroupTokens * kWidth) {}

  void fill(const std::vector<std::int32_t>& tokens) {
    batch_ = tokens;
    const std::vector<std::int32_t> lengths = lengths_of(tokens);
    slots_ = slots_of(tokens, lengths);
    tokens_[0] = tokens[group_];
    // Into the memory that recorded calls read.
    std::ranges::copy(
        shard_counts(layer_.layout, tokens, layer_.split, layer_.slot == SlotKind::dense ? tokens : lengths),
        counts_.begin());
    std::ranges::copy(shard_counts(layer_.layout, lengths, layer_.split), lengths_.begin());
    for (auto* const memory : {&partial_, &shard_, &all_, &sums_, &slot_, &result_})
      std::ranges::fill(*memory, kGarbage);
    for (std::size_t token = 0; token < own_tokens(); ++token) {
      for (std::size_t column = 0; column < kWidth; ++column)
        partial_[token * kWidth + column] = part_of(rank_, group_, token, column);
    }
  }

  // Partial sums of a group become shards, and these all tokens on every rank.
  void gather() {
    scatter(attention_, partial_, kGroupTokens, shard_, shard_rows(), in_group());
    collect(world_, shard_, shard_rows(), all_, all_rows(), over_all());
  }
  // A feed-forward layer: every rank has partial sums of all tokens, and in pads what must not leak.
  void feed_forward() {
    for (std::size_t group = 0; group < slots_.size(); ++group) {
      for (std::size_t i = slots_[group].begin * kWidth; i < slots_[group].end * kWidth; ++i) {
        const bool pad = i / kWidth >= slots_[group].begin + static_cast<std::size_t>(batch_[group]);
        sums_[i] = pad ? std::numeric_limits<float>::quiet_NaN() : all_[i] * static_cast<float>(rank_ + 1);
      }
    }
  }
  // They become shards, and these the group's tokens.
  void combine() {
    scatter(world_, sums_, all_rows(), slot_, shard_rows(), over_all());
    collect(attention_, slot_, shard_rows(), result_, kGroupTokens, in_group());
  }
  // Ranks with the same heads, of all groups: while others are at something else.
  void say_how_many() {
    std::vector<std::int32_t> all(static_cast<std::size_t>(across_.size()));
    all_gather_into_tensor(across_, {.input = tokens_.data(), .output = all.data(), .row_bytes = 4});
    EXPECT_EQ(all, batch_);
  }

  void expect_right() const {
    for (std::size_t group = 0; group < slots_.size(); ++group) {
      for (std::size_t row = slots_[group].begin; row < slots_[group].end; ++row)
        expect_row(all_, row, group, row - slots_[group].begin, 1);
    }
    for (std::size_t i = slots_.back().end * kWidth; i < all_.size(); ++i) ASSERT_EQ(all_[i], kGarbage);
    const auto ranks = static_cast<float>(layer_.layout.tp);
    for (std::size_t row = 0; row < slots_[group_].size(); ++row)
      expect_row(result_, row, group_, row, ranks * (ranks + 1) / 2);
  }

 private:
  std::size_t own_tokens() const { return static_cast<std::size_t>(batch_[group_]); }
  std::size_t shard_rows() const { return kGroupTokens / static_cast<std::size_t>(layer_.layout.attn_tp()); }
  std::size_t all_rows() const { return kGroupTokens * static_cast<std::size_t>(layer_.layout.dp); }

  // Of each group's slot.
  std::vector<std::int32_t> lengths_of(const std::vector<std::int32_t>& tokens) const {
    constexpr auto most = static_cast<std::int32_t>(kGroupTokens);
    std::vector<std::int32_t> lengths = tokens;
    for (std::size_t group = 0; group < lengths.size(); ++group) {
      if (layer_.slot == SlotKind::fixed) lengths[group] = most;
      if (layer_.slot == SlotKind::given)
        lengths[group] = std::min(most, tokens[group] + static_cast<std::int32_t>((group * 3 + 2) % 5));
    }
    return lengths;
  }

  // Where slots have pads, it is the slot that is split: ranks of a group read their part of everybody's counts.
  Counts in_group() const {
    if (layer_.slot == SlotKind::dense) return {.rows = tokens_.data(), .split = layer_.split};
    return of_shards(group_ * static_cast<std::size_t>(layer_.layout.attn_tp()));
  }
  Counts over_all() const { return of_shards(0); }
  Counts of_shards(std::size_t first) const {
    return {.rows = counts_.data() + first,
            .slot = layer_.slot,
            .slot_rows = shard_rows(),
            .slots = layer_.slot == SlotKind::given ? lengths_.data() + first : nullptr};
  }

  static void scatter(const Group& group, const std::vector<float>& input, std::size_t input_rows,
                      std::vector<float>& output, std::size_t output_rows, const Counts& counts) {
    reduce_scatter_v(group, {.input = input.data(),
                             .output = output.data(),
                             .width = kWidth,
                             .type = DataType::f32,
                             .counts = counts,
                             .input_rows = input_rows,
                             .output_rows = output_rows});
  }
  static void collect(const Group& group, const std::vector<float>& input, std::size_t input_rows,
                      std::vector<float>& output, std::size_t output_rows, const Counts& counts) {
    const GatheredTensor tensor{.input = input.data(), .output = output.data(), .row_bytes = kWidth * 4};
    all_gather_v(
        group,
        {.tensors = std::span(&tensor, 1), .counts = counts, .input_rows = input_rows, .output_rows = output_rows});
  }

  // Row `row` is token `token` of `group`, summed over its ranks, `times` over; or zero, behind the last token.
  void expect_row(const std::vector<float>& rows, std::size_t row, std::size_t group, std::size_t token,
                  float times) const {
    for (std::size_t column = 0; column < kWidth; ++column) {
      float wanted = 0;
      const int first = static_cast<int>(group) * layer_.layout.attn_tp();
      for (const int member : layer_.layout.attn_tp_group(first)) {
        if (token < static_cast<std::size_t>(batch_[group])) wanted += part_of(member, group, token, column);
      }
      ASSERT_EQ(rows[row * kWidth + column], wanted * times)
          << "rank " << rank_ << " row " << row << ", token " << token << " of group " << group;
    }
  }

  const Layer& layer_;
  const Communicator& world_;
  int rank_;
  std::size_t group_;
  Group attention_, across_;
  std::vector<std::int32_t> batch_, tokens_, counts_, lengths_;
  std::vector<RowRange> slots_;
  std::vector<float> partial_, shard_, all_, sums_, slot_, result_;
};

class Attention : public testing::TestWithParam<ParallelLayout> {};
INSTANTIATE_TEST_SUITE_P(Layouts, Attention,
                         testing::Values(ParallelLayout{.tp = 1}, ParallelLayout{.tp = 4, .dp = 1},
                                         ParallelLayout{.tp = 4, .dp = 2}, ParallelLayout{.tp = 4, .dp = 4},
                                         ParallelLayout{.tp = 6, .dp = 2}, ParallelLayout{.tp = 8, .dp = 4}),
                         [](const auto& info) {
                           return "Tp" + std::to_string(info.param.tp) + "Dp" + std::to_string(info.param.dp);
                         });

// No tokens, tokens of one group alone, fewer than a group has ranks, as many as there is room for, and any.
std::vector<std::vector<std::int32_t>> batches_of(int groups) {
  const auto n = static_cast<std::size_t>(groups);
  const auto most = static_cast<std::int32_t>(kGroupTokens);
  std::vector<std::vector<std::int32_t>> batches{std::vector<std::int32_t>(n, 0), std::vector<std::int32_t>(n, most),
                                                 std::vector<std::int32_t>(n, 1)};
  for (std::size_t group = 0; group < n; ++group) batches.emplace_back(n, 0)[group] = 7;
  std::mt19937 random(4);
  for (int i = 0; i < 20; ++i) {
    std::vector<std::int32_t>& batch = batches.emplace_back(n);
    for (std::int32_t& tokens : batch) tokens = static_cast<std::int32_t>(random() % (kGroupTokens + 1));
  }
  return batches;
}

TEST_P(Attention, ALayerFromPartialSumsToEachGroupsTokens) {
  const ParallelLayout layout = GetParam();
  const auto batches = batches_of(layout.dp);
  for (const Layer& layer :
       {Layer{layout, SlotKind::dense, Split::balanced}, Layer{layout, SlotKind::dense, Split::ceil},
        Layer{layout, SlotKind::fixed, Split::balanced}, Layer{layout, SlotKind::given, Split::balanced},
        Layer{layout, SlotKind::given, Split::ceil}}) {
    expect_all_well(run_world(layout.tp, small_slots(), [&](Communicator& communicator, int rank) {
      LayerRank mine(layer, communicator);
      mine.fill(batches[0]);
      const Recording gather = Recording::capture(communicator, [&] { mine.gather(); });
      const Recording combine = Recording::capture(communicator, [&] { mine.combine(); });
      std::mt19937 delays(static_cast<unsigned>(rank));
      for (std::size_t batch = 0; batch < batches.size(); ++batch) {
        if (delays() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delays() % 200));
        mine.fill(batches[batch]);
        mine.say_how_many();
        if (batch % 3 == 0) {
          mine.gather();
        } else {
          gather.replay();
        }
        mine.feed_forward();
        if (batch % 2 == 0) {
          mine.combine();
        } else {
          combine.replay();
        }
        mine.expect_right();
      }
    }));
  }
}

// Groups of two kinds and the world, each with calls, counts and sizes of its own, none waiting for another.
TEST(AttentionGroups, RaggedCallsSideBySide) {
  constexpr int ranks = 6;
  constexpr Kind kinds[] = {Kind::all_gather_v, Kind::reduce_scatter_v};
  expect_all_well(run_world(ranks, small_slots(), [&](Communicator& communicator, int rank) {
    const Group pair = communicator.split(rank / 2), across = communicator.split(rank % 2);
    std::mt19937 of_pair(static_cast<unsigned>(10 + rank / 2)), of_across(static_cast<unsigned>(20 + rank % 2));
    std::mt19937 of_all(30);
    const auto run = [&](const Group& group, std::mt19937& random, int turn) {
      const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
      std::vector<std::int32_t> counts;
      for (int i = 0; i < group.size(); ++i) counts.push_back(static_cast<std::int32_t>(pick(3) == 0 ? 0 : pick(9)));
      const auto split = static_cast<Split>(pick(3));
      if (split != Split::none) counts.resize(1);
      run_on_cpu_rank(group, {.kind = kinds[pick(2)],
                              .widths = {pick(2) == 0 ? 900 : pick(40)},
                              .fill = Fill::special,
                              .in_place = pick(3) == 0,
                              .counts = counts,
                              .split = split,
                              .slot = static_cast<SlotKind>(pick(4)),
                              .slot_rows = 8,
                              .seed = static_cast<std::uint32_t>(turn)});
    };
    for (int turn = 0; turn < repeated(60); ++turn) {
      run(pair, of_pair, turn);
      run(across, of_across, turn);
      if (turn % 7 == 0) run(communicator, of_all, turn);
    }
  }));
}

}  // namespace
}  // namespace weft::test
