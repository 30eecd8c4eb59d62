// Ways to run a model on several ranks: the communication of a whole forward pass in each, as calls that are counted
// and timed apart. Totals of the same tokens can be compared with each other.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/models.hpp"
#include "weft/parallel.hpp"

namespace weft::cli {

// Calls with all tokens of a forward pass. The first three are over all ranks. The last but one are of every attention
// group at the same time, between its tokens and its ranks' shards.
enum class Step : std::uint8_t {
  all_reduce,
  gather,        // each attention group's tokens, summed over its ranks, to all ranks
  scatter,       // sums over all ranks to each attention group
  attn_scatter,  // sums over a group's ranks to shards
  attn_gather,   // shards to the group's tokens
  exchange       // each rank's shard to its experts and back
};
inline constexpr std::size_t kSteps = 6;
constexpr std::string_view name(Step step) {
  constexpr std::string_view names[kSteps] = {"all-reduce",   "gather",      "scatter",
                                              "attn scatter", "attn gather", "dispatch and combine"};
  return names[static_cast<std::size_t>(step)];
}

// The ranks, and what all of them share. `layout.ep`: 1: no experts are on ranks of their own.
struct ModelLayout {
  ParallelLayout layout = {};
  bool split_shared_experts = false;  // else each rank has all of them, and sends nothing for them

  // Throws Errc::invalid_argument with the option for what cannot be, or is not measured.
  void check(const ModelShape& shape) const;
};

struct CountedStep {
  Step step;
  std::int64_t times;  // in a forward pass
  bool operator==(const CountedStep&) const = default;
};
struct ModelWay {
  std::string name;
  std::vector<CountedStep> steps;  // at most one for each step, none of them 0 times
};
std::vector<ModelWay> ways_of(const ModelShape& shape, const ModelLayout& parallel);
bool needs(const std::vector<ModelWay>& ways, Step step);
// "122 all-reduce", "58 dispatch and combine, 3 gather, 3 scatter"
std::string in_words(const ModelWay& way);

// µs of one call of each step, Weft's and the best peer's; none: not measured, or wrong.
struct StepTimes {
  std::optional<double> weft[kSteps] = {}, peer[kSteps] = {};
};
// The sum over a forward pass; none if a step has none.
struct PassTime {
  std::optional<double> weft, peer;
};
PassTime total_of(const ModelWay& way, const StepTimes& times);

// Tokens of an attention group and of a rank, if a forward pass has so many: the largest group's and rank's.
std::int64_t group_tokens(std::int64_t tokens, const ParallelLayout& layout);
std::int64_t rank_tokens(std::int64_t tokens, const ParallelLayout& layout);

}  // namespace weft::cli
