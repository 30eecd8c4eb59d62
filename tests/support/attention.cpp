#include "support/attention.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <span>
#include <stdexcept>

#include "oracle/moves.hpp"
#include "support/ranks.hpp"
#include "support/sanitized.hpp"
#include "weft/take.hpp"

namespace weft::test {
namespace {

constexpr std::int32_t kMultiple = 4;  // for aligned slots; divides kGroupTokens
constexpr float kGarbage = 1e30f;      // in unwritten memory

// Small whole numbers, whose sums are exact in any order.
float part_of(int rank, std::size_t group, std::size_t token, std::size_t column) {
  return static_cast<float>((static_cast<std::size_t>(rank) * 5 + group * 3 + token * 7 + column) % 17);
}

}  // namespace

std::string describe(const Layer& layer) {
  return fmt::format("tp {} dp {}, padding {}, sharding {}, rows of {}", layer.layout.tp, layer.layout.dp,
                     name(layer.padding), name(layer.sharding), layer.width);
}

std::vector<ParallelLayout> attention_layouts() {
  std::vector<ParallelLayout> layouts{{.tp = 1},          {.tp = 2, .dp = 1}, {.tp = 2, .dp = 2}, {.tp = 4, .dp = 1},
                                      {.tp = 4, .dp = 2}, {.tp = 4, .dp = 4}, {.tp = 6, .dp = 2}, {.tp = 8, .dp = 4}};
  const std::vector<int> sizes = world_sizes({1, 2, 4, 6, 8});
  std::erase_if(layouts, [&](const ParallelLayout& layout) { return std::ranges::count(sizes, layout.tp) == 0; });
  return layouts;
}

std::string test_name(const ParallelLayout& layout) {
  return fmt::format("Tp{}Dp{}", layout.tp, layout.dp);
}

std::vector<Layer> attention_layers(const ParallelLayout& layout) {
  return {{layout, Padding::none, Sharding::balanced, 6},     {layout, Padding::none, Sharding::ceil, 256},
          {layout, Padding::fixed, Sharding::balanced, 64},   {layout, Padding::aligned, Sharding::ceil, 6},
          {layout, Padding::aligned, Sharding::balanced, 64}, {layout, Padding::max, Sharding::balanced, 6},
          {layout, Padding::max, Sharding::ceil, 64},         {layout, Padding::per_rank, Sharding::balanced, 6},
          {layout, Padding::per_rank, Sharding::ceil, 64}};
}

std::vector<std::vector<std::int32_t>> attention_batches(int groups) {
  const auto n = static_cast<std::size_t>(groups);
  std::vector<std::vector<std::int32_t>> batches{std::vector<std::int32_t>(n, 0),
                                                 std::vector<std::int32_t>(n, std::int32_t{kGroupTokens}),
                                                 std::vector<std::int32_t>(n, 1)};
  for (std::size_t group = 0; group < n; ++group) batches.emplace_back(n, 0)[group] = 7;
  std::mt19937 random(4);
  for (int i = 0; i < repeated(20); ++i) {
    std::vector<std::int32_t>& batch = batches.emplace_back(n);
    for (std::int32_t& tokens : batch) tokens = static_cast<std::int32_t>(random() % (kGroupTokens + 1));
  }
  return batches;
}

LayerRank::LayerRank(const Layer& layer, const LayerGroups& groups, LayerSpace& space)
    : layer_(layer),
      groups_(groups),
      space_(space),
      rank_(groups.world.rank()),
      group_(static_cast<std::size_t>(layer.layout.attn_dp_rank(rank_))),
      parts_{.ranks = static_cast<std::size_t>(layer.layout.tp), .columns = 1, .group_ranks = attn_tp()},
      tokens_(make<std::int32_t>(1)),
      known_(make<std::int32_t>(parts_.words())),
      rows_(make<std::int32_t>(parts_.groups())),
      lengths_(make<std::int32_t>(parts_.groups())),
      shards_(make<std::int32_t>(parts_.ranks)),
      shard_lengths_(make<std::int32_t>(parts_.ranks)),
      partial_(make<float>(kGroupTokens * layer.width)),
      shard_(make<float>(shard_rows() * layer.width)),
      all_(make<float>(all_rows() * layer.width)),
      sums_(make<float>(all_rows() * layer.width)),
      slot_(make<float>(shard_rows() * layer.width)),
      result_(make<float>(kGroupTokens * layer.width)),
      own_(make<float>(kGroupTokens * layer.width)),
      own_shard_(make<float>(shard_rows() * layer.width)),
      reduced_(make<float>(kGroupTokens * layer.width)),
      own_sums_(make<float>(shard_rows() * layer.width)),
      shared_(make<float>(kGroupTokens * layer.width)),
      crossed_(make<float>(all_rows() * layer.width)),
      returned_(make<float>(kGroupTokens * layer.width)) {}

// The length of each group's slot.
std::vector<std::int32_t> LayerRank::lengths_of(const std::vector<std::int32_t>& batch) const {
  std::vector<std::int32_t> lengths;
  if (layer_.padding == Padding::per_rank) {
    for (std::size_t group = 0; group < batch.size(); ++group) {
      const std::int32_t more = batch[group] + static_cast<std::int32_t>((group * 3 + 2) % 5);
      lengths.push_back(std::min(std::int32_t{kGroupTokens}, more));
    }
    return lengths;
  }
  const std::vector<std::size_t> rows(batch.begin(), batch.end());
  for (const oracle::Place& place : oracle::places_of(rows, layer_.padding, slot_rows()))
    lengths.push_back(static_cast<std::int32_t>(place.slot));
  return lengths;
}

void LayerRank::fill(const std::vector<std::int32_t>& batch) {
  batch_ = batch;
  const std::vector<std::int32_t> lengths = lengths_of(batch);
  slots_ = slots_of(batch, lengths);
  write(tokens_, {batch[group_]});
  write(known_, std::vector<std::int32_t>(known_.size, -1));
  if (layer_.padding == Padding::per_rank) {
    write(rows_, batch);
    write(lengths_, lengths);
    write(shards_, shard_counts(layer_.layout, batch, layer_.sharding, lengths));
    write(shard_lengths_, shard_counts(layer_.layout, lengths, layer_.sharding));
  }
  for (const auto* tensor : {&shard_, &all_, &sums_, &slot_, &result_, &own_, &own_shard_, &reduced_, &own_sums_,
                             &shared_, &crossed_, &returned_})
    write(*tensor, std::vector<float>(tensor->size, kGarbage));
  std::vector<float> partial(partial_.size, kGarbage);
  for (std::size_t token = 0; token < static_cast<std::size_t>(batch[group_]); ++token) {
    for (std::size_t column = 0; column < layer_.width; ++column)
      partial[token * layer_.width + column] = part_of(rank_, group_, token, column);
  }
  write(partial_, partial);
}

std::size_t LayerRank::slot_rows() const {
  return layer_.padding == Padding::aligned ? kMultiple : kGroupTokens;
}

Counts LayerRank::of_groups() const {
  if (layer_.padding == Padding::per_rank)
    return {.rows = rows_.data(), .padding = layer_.padding, .slots = lengths_.data()};
  return {.rows = known_.data() + parts_.rows(), .padding = layer_.padding, .slot_rows = slot_rows()};
}

// With padded slots the slot is split: ranks of a group read their part of the counts of all ranks.
Counts LayerRank::in_group() const {
  if (layer_.padding != Padding::none) return of_shards(group_ * attn_tp());
  return {.rows = known_.data() + parts_.rows() + group_, .sharding = layer_.sharding};
}

Counts LayerRank::of_shards(std::size_t first) const {
  if (layer_.padding == Padding::per_rank)
    return {.rows = shards_.data() + first, .padding = layer_.padding, .slots = shard_lengths_.data() + first};
  const std::int32_t* const rows = known_.data() + parts_.shards() + first;
  if (layer_.padding == Padding::aligned || layer_.padding == Padding::max)
    return {.rows = rows, .padding = Padding::per_rank, .slots = known_.data() + parts_.shard_slots() + first};
  return {.rows = rows, .padding = layer_.padding, .slot_rows = shard_rows()};
}

void LayerRank::scatter(const Group& group, const Tensor<float>& input, std::size_t input_rows,
                        const Tensor<float>& output, const Counts& counts) const {
  reduce_scatter_v(group, {.input = input.data(),
                           .output = output.data(),
                           .width = layer_.width,
                           .type = DataType::f32,
                           .counts = counts,
                           .input_rows = input_rows,
                           .output_rows = shard_rows(),
                           .stream = space_.stream(),
                           .launch = space_.launch()});
}

void LayerRank::collect(const Group& group, const Tensor<float>& input, const Tensor<float>& output,
                        std::size_t output_rows, const Counts& counts) const {
  const GatheredTensor tensor{.input = input.data(), .output = output.data(), .row_bytes = layer_.width * 4};
  all_gather_v(group, {.tensors = std::span(&tensor, 1),
                       .counts = counts,
                       .input_rows = shard_rows(),
                       .output_rows = output_rows,
                       .stream = space_.stream(),
                       .launch = space_.launch()});
}

void LayerRank::cross(void (*call)(const Group&, const CrossingArgs&), const Tensor<float>& input,
                      std::size_t input_rows, const Tensor<float>& output, std::size_t output_rows) const {
  call(groups_.world, {.input = input.data(),
                       .output = output.data(),
                       .width = layer_.width,
                       .type = DataType::f32,
                       .group_ranks = attn_tp(),
                       .counts = of_shards(0),
                       .input_rows = input_rows,
                       .output_rows = output_rows,
                       .stream = space_.stream(),
                       .launch = space_.launch()});
}

void LayerRank::take_rows(const Tensor<float>& output, std::size_t rows, std::size_t shards, std::size_t shard) const {
  Counts counts = of_groups();
  counts.sharding = layer_.sharding;
  weft::take_rows(groups_.world, {.input = all_.data(),
                                  .output = output.data(),
                                  .row_bytes = layer_.width * 4,
                                  .counts = counts,
                                  .slots = parts_.groups(),
                                  .slot = group_,
                                  .shards = shards,
                                  .shard = shard,
                                  .split_slots = layer_.padding != Padding::none,
                                  .input_rows = all_rows(),
                                  .output_rows = rows,
                                  .stream = space_.stream()});
}

void LayerRank::gather() const {
  if (layer_.padding != Padding::per_rank)
    all_gather_counts(groups_.world, {.input = tokens_.data(),
                                      .output = known_.data(),
                                      .group_ranks = attn_tp(),
                                      .sharding = layer_.sharding,
                                      .split_slots = layer_.padding != Padding::none,
                                      .padding = layer_.padding,
                                      .slot_rows = slot_rows(),
                                      .stream = space_.stream()});
  scatter(groups_.attention, partial_, kGroupTokens, shard_, in_group());
  collect(groups_.world, shard_, all_, all_rows(), of_shards(0));
  cross(gather_sums, partial_, kGroupTokens, crossed_, all_rows());
}

void LayerRank::take() const {
  take_rows(own_, kGroupTokens, 1, 0);
  take_rows(own_shard_, shard_rows(), attn_tp(), static_cast<std::size_t>(layer_.layout.attn_tp_rank(rank_)));
  scatter(groups_.attention, partial_, kGroupTokens, own_sums_, in_group());
  collect(groups_.attention, own_sums_, shared_, kGroupTokens, in_group());
  all_reduce(groups_.attention, {.input = partial_.data(),
                                 .output = reduced_.data(),
                                 .count = reduced_.size,
                                 .type = DataType::f32,
                                 .stream = space_.stream(),
                                 .launch = space_.launch()});
}

void LayerRank::feed_forward() {
  const std::vector<float> all = read(all_);
  std::vector<float> sums(sums_.size, kGarbage);
  for (std::size_t group = 0; group < slots_.size(); ++group) {
    for (std::size_t i = slots_[group].begin * layer_.width; i < slots_[group].end * layer_.width; ++i) {
      const bool pad = i / layer_.width >= slots_[group].begin + static_cast<std::size_t>(batch_[group]);
      sums[i] = pad ? std::numeric_limits<float>::quiet_NaN() : all[i] * static_cast<float>(rank_ + 1);
    }
  }
  write(sums_, sums);
}

void LayerRank::combine() const {
  scatter(groups_.world, sums_, all_rows(), slot_, of_shards(0));
  collect(groups_.attention, slot_, result_, kGroupTokens, in_group());
  cross(scatter_sums, sums_, all_rows(), returned_, kGroupTokens);
}

// The sum over the ranks of the group; zero behind its last token.
float LayerRank::wanted(std::size_t group, std::size_t token, std::size_t column) const {
  if (token >= static_cast<std::size_t>(batch_[group])) return 0;
  float sum = 0;
  for (const int member : layer_.layout.attn_tp_group(static_cast<int>(group * attn_tp())))
    sum += part_of(member, group, token, column);
  return sum;
}

// Checks rows begin … begin + count: `times` the tokens of `group` from `token` on.
void LayerRank::check_rows(const char* what, const std::vector<float>& rows, std::size_t begin, std::size_t count,
                           std::size_t group, std::size_t token, float times) const {
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t column = 0; column < layer_.width; ++column) {
      const float got = rows[(begin + row) * layer_.width + column];
      const float right = wanted(group, token + row, column) * times;
      if (got == right) continue;
      throw std::runtime_error(fmt::format("{}: {} of rank {}: row {}, token {} of group {}: {} instead of {}",
                                           describe(layer_), what, rank_, begin + row, token + row, group, got, right));
    }
  }
}

// Compares the kernels' counts with the host's.
void LayerRank::check_counts() const {
  if (layer_.padding == Padding::per_rank) return;
  const std::vector<std::int32_t> known = read(known_);
  const auto part = [&](std::size_t begin, std::size_t size) {
    const auto from = known.begin() + static_cast<std::ptrdiff_t>(begin);
    return std::vector<std::int32_t>(from, from + static_cast<std::ptrdiff_t>(size));
  };
  ensure(part(parts_.rows(), parts_.groups()) == batch_, "rows of groups");
  const std::vector<std::int32_t> lengths = lengths_of(batch_);
  ensure(part(parts_.slots(), parts_.groups()) == lengths, "slots of groups");
  ensure(part(parts_.shards(), parts_.ranks) == shard_counts(layer_.layout, batch_, layer_.sharding, lengths),
         "rows of shards");
  const std::vector<std::int32_t>& shared = layer_.padding == Padding::none ? batch_ : lengths;
  ensure(part(parts_.shard_slots(), parts_.ranks) == shard_counts(layer_.layout, shared, layer_.sharding),
         "slots of shards");
}

void LayerRank::check() const {
  check_counts();
  const std::vector<float> all = read(all_);
  for (std::size_t group = 0; group < slots_.size(); ++group)
    check_rows("all tokens", all, slots_[group].begin, slots_[group].size(), group, 0, 1);
  for (std::size_t i = slots_.back().end * layer_.width; i < all.size(); ++i)
    ensure(all[i] == kGarbage, "something was written behind the last slot");

  const auto tokens = static_cast<std::size_t>(batch_[group_]);
  const bool dense = layer_.padding == Padding::none;
  check_rows("the group's tokens", read(own_), 0, kGroupTokens, group_, 0, 1);
  check_rows("the all-reduce", read(reduced_), 0, tokens, group_, 0, 1);
  check_rows("the all-reduce by counts", read(shared_), 0, slots_[group_].size(), group_, 0, 1);
  const RowRange mine = shard_of(dense ? tokens : slots_[group_].size(), static_cast<int>(attn_tp()),
                                 layer_.layout.attn_tp_rank(rank_), layer_.sharding);
  const std::vector<float> own_shard = read(own_shard_);
  check_rows("the shard", own_shard, 0, mine.size(), group_, mine.begin, 1);
  for (std::size_t i = mine.size() * layer_.width; i < own_shard.size(); ++i) ensure(own_shard[i] == 0, "not cleared");

  ensure(read(crossed_) == all, "gather_sums differs from the two calls that it replaces");
  const auto ranks = static_cast<float>(layer_.layout.tp);
  const std::vector<float> result = read(result_);
  check_rows("the result", result, 0, slots_[group_].size(), group_, 0, ranks * (ranks + 1) / 2);
  ensure(read(returned_) == result, "scatter_sums differs from the two calls that it replaces");
}

}  // namespace weft::test
