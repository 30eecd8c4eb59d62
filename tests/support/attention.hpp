// One rank's layer with data-parallel attention and known answers: the chain of docs/dp_attention.md, the same for CPU
// ranks and GPU ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "weft/collectives.hpp"
#include "weft/communicator.hpp"
#include "weft/counts.hpp"
#include "weft/crossings.hpp"
#include "weft/parallel.hpp"

namespace weft::test {

inline constexpr std::size_t kGroupTokens = 12;  // room of a group; attn_tp of every layout divides it

struct Layer {
  ParallelLayout layout;
  // The slots of groups. fixed: room for the most tokens of a group; per_rank: for the batch's tokens; none: tokens lie
  // side by side.
  Padding padding;
  Sharding sharding;
  std::size_t width;  // elements of a row
};
std::string describe(const Layer& layer);

std::vector<ParallelLayout> attention_layouts();
std::string test_name(const ParallelLayout& layout);
// For a layout: every kind of slot, both rules, rows of whole packs and of an odd width.
std::vector<Layer> attention_layers(const ParallelLayout& layout);
// No tokens, tokens of only one group, fewer than a group has ranks, as many as there is room for, and any number.
std::vector<std::vector<std::int32_t>> attention_batches(int groups);

// The memory of a rank's tensors.
class LayerSpace {
 public:
  virtual ~LayerSpace() = default;
  // Allocates memory that calls read and write.
  virtual std::byte* take(std::size_t bytes) = 0;
  // Runs behind all earlier calls, and ahead of later ones.
  virtual void write(std::byte* to, const void* from, std::size_t bytes) = 0;
  virtual void read(void* to, const std::byte* from, std::size_t bytes) = 0;
  virtual Stream stream() const { return nullptr; }
  virtual Launch launch() const { return {}; }
};

struct LayerGroups {
  LayerGroups(Communicator& communicator, const ParallelLayout& layout)
      : world(communicator),
        attention(communicator.split(layout.attn_tp_color(communicator.rank()))),
        across(communicator.split(layout.attn_dp_color(communicator.rank()))) {}
  Group world, attention, across;
};

// One rank's memory and calls. Capacities do not depend on the batch, so one recording of a step serves all batches.
// All functions throw if anything is wrong.
class LayerRank {
 public:
  LayerRank(const Layer& layer, const LayerGroups& groups, LayerSpace& space);

  // Writes the inputs of a batch with each group's number of tokens.
  void fill(const std::vector<std::int32_t>& batch);

  // Steps, which may be recorded.
  //
  // Ranks exchange their numbers of tokens. A group's partial sums become shards, and the shards become all tokens on
  // every rank; then both at once, in one crossing. If slots have lengths of their own, the batch gives them.
  void gather() const;
  // Takes the group's tokens and this rank's shard out of all tokens. Makes the group's tokens again by an all-reduce,
  // and by counts to shards and back.
  void take() const;
  // All ranks' partial sums of all tokens become shards, and the shards become the group's tokens; then both at once.
  void combine() const;

  // Between gather() and combine(): gives every rank partial sums of all tokens, and padding that must not leak.
  void feed_forward();
  // Call it behind all steps.
  void check() const;

 private:
  template <class T>
  struct Tensor {
    std::byte* memory = nullptr;
    std::size_t size = 0;
    T* data() const { return reinterpret_cast<T*>(memory); }
  };
  template <class T>
  Tensor<T> make(std::size_t size) const {
    return {space_.take(size * sizeof(T)), size};
  }
  template <class T>
  void write(const Tensor<T>& tensor, const std::vector<T>& values) const {
    space_.write(tensor.memory, values.data(), values.size() * sizeof(T));
  }
  template <class T>
  std::vector<T> read(const Tensor<T>& tensor) const {
    std::vector<T> values(tensor.size);
    space_.read(values.data(), tensor.memory, values.size() * sizeof(T));
    return values;
  }

  std::size_t attn_tp() const { return static_cast<std::size_t>(layer_.layout.attn_tp()); }
  std::size_t shard_rows() const { return kGroupTokens / attn_tp(); }
  std::size_t slot_rows() const;
  std::size_t all_rows() const { return kGroupTokens * static_cast<std::size_t>(layer_.layout.dp); }
  std::vector<std::int32_t> lengths_of(const std::vector<std::int32_t>& batch) const;

  Counts of_groups() const;
  Counts in_group() const;
  Counts of_shards(std::size_t first) const;

  void scatter(const Group& group, const Tensor<float>& input, std::size_t input_rows, const Tensor<float>& output,
               const Counts& counts) const;
  void collect(const Group& group, const Tensor<float>& input, const Tensor<float>& output, std::size_t output_rows,
               const Counts& counts) const;
  void cross(void (*call)(const Group&, const CrossingArgs&), const Tensor<float>& input, std::size_t input_rows,
             const Tensor<float>& output, std::size_t output_rows) const;
  void take_rows(const Tensor<float>& output, std::size_t rows, std::size_t shards, std::size_t shard) const;

  float wanted(std::size_t group, std::size_t token, std::size_t column) const;
  void check_rows(const char* what, const std::vector<float>& rows, std::size_t begin, std::size_t count,
                  std::size_t group, std::size_t token, float times) const;
  void check_counts() const;

  Layer layer_;
  LayerGroups groups_;
  LayerSpace& space_;
  int rank_;
  std::size_t group_;
  GatheredCounts parts_;
  std::vector<std::int32_t> batch_;
  std::vector<RowRange> slots_;
  Tensor<std::int32_t> tokens_, known_;                           // exchanged counts
  Tensor<std::int32_t> rows_, lengths_, shards_, shard_lengths_;  // given by the batch: of groups, of ranks
  Tensor<float> partial_, shard_, all_, sums_, slot_, result_, own_, own_shard_, reduced_, own_sums_, shared_, crossed_,
      returned_;
};

// A layer for every batch, each step recorded once (by a side of support/move_recordings.hpp) and made eagerly in
// turns. `between(batch)` is called between the first two steps.
template <class Side, class Between>
void layer_for_every_batch(const Side& side, LayerRank& mine, const std::vector<std::vector<std::int32_t>>& batches,
                           const Between& between) {
  mine.fill(batches[0]);
  const auto gather = side.record([&] { mine.gather(); });
  const auto take = side.record([&] { mine.take(); });
  const auto combine = side.record([&] { mine.combine(); });
  for (std::size_t batch = 0; batch < batches.size(); ++batch) {
    mine.fill(batches[batch]);
    batch % 3 == 0 ? mine.gather() : side.replay(gather);
    between(batch);
    batch % 4 == 0 ? mine.take() : side.replay(take);
    mine.feed_forward();
    batch % 2 == 0 ? mine.combine() : side.replay(combine);
    mine.check();
    side.check();
  }
}

}  // namespace weft::test
