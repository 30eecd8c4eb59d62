#include "bench/model_ways.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "weft/error.hpp"

namespace weft::cli {
namespace {

// Adds calls to those of the same step.
class Steps {
 public:
  void add(Step step, std::int64_t times) { times_[static_cast<std::size_t>(step)] += times; }
  // Tokens of a group to its ranks' shards and back.
  void add_shards(const ParallelLayout& layout, std::int64_t times) {
    if (layout.attn_tp() == 1) return;
    add(Step::attn_scatter, times);
    add(Step::attn_gather, times);
  }
  // Tokens of all groups to all ranks and back. With one group both are all-reduces.
  void add_crossings(const ParallelLayout& layout, std::int64_t times) {
    if (layout.dp == 1) return add(Step::all_reduce, 2 * times);
    add(Step::gather, times);
    add(Step::scatter, times);
  }
  ModelWay named(std::string name) const {
    ModelWay way{std::move(name), {}};
    for (std::size_t i = 0; i < kSteps; ++i) {
      if (times_[i] != 0) way.steps.push_back({static_cast<Step>(i), times_[i]});
    }
    return way;
  }

 private:
  std::int64_t times_[kSteps] = {};
};

// Blocks of attention (or the like) that no feed-forward part follows: their sums stay in the group.
std::int64_t lone_mixers(const ModelShape& shape) {
  const std::int64_t mixers = shape.all_reduces - shape.dense_parts - shape.moe_layers;
  return std::max<std::int64_t>(0, mixers - shape.gathers);
}

ModelWay with_expert_parallelism(const ModelShape& shape, const ModelLayout& parallel) {
  const ParallelLayout& layout = parallel.layout;
  Steps steps;
  if (layout.dense_tp() == 1) {
    steps.add_shards(layout, shape.dense_parts);
  } else {
    steps.add_crossings(layout, shape.dense_parts);
  }
  steps.add(Step::exchange, shape.moe_layers);
  steps.add_shards(layout, shape.moe_layers + lone_mixers(shape));
  if (parallel.split_shared_experts) steps.add_crossings(layout, shape.moe_layers);
  return steps.named(layout.dp == 1 ? "TP attention, EP" : "DP attention, EP");
}

std::int64_t share_of(std::int64_t tokens, int parts) {
  return (tokens + parts - 1) / parts;
}

Error bad(const std::string& what) {
  return Error(Errc::invalid_argument, what);
}

}  // namespace

void ModelLayout::check(const ModelShape& shape) const {
  const auto divides = [&](const char* option, int value) {
    if (value < 1 || layout.tp % value != 0)
      throw bad(fmt::format("{} {}: not a divisor of --tp {}", option, value, layout.tp));
  };
  divides("--dp", layout.dp);
  divides("--ep", layout.ep);
  if (layout.ep > 1 && !shape.has_experts())
    throw bad(fmt::format("--ep {}: {} has no experts", layout.ep, shape.name));
  if (layout.ep != 1 && layout.ep != layout.tp)
    throw bad(
        fmt::format("--ep {}: neither 1 nor --tp {}; experts that ranks share are not measured", layout.ep, layout.tp));
  if (layout.dense_tp() != 1 && layout.dense_tp() != layout.tp)
    throw bad(fmt::format("--moe-dense-tp {}: neither 1 nor --tp {}", layout.moe_dense_tp, layout.tp));
  if (split_shared_experts && shape.shared_experts == 0)
    throw bad(fmt::format("--shared-experts split: {} has no shared experts", shape.name));
}

std::vector<ModelWay> ways_of(const ModelShape& shape, const ModelLayout& parallel) {
  const ParallelLayout& layout = parallel.layout;
  Steps sums;
  sums.add(Step::all_reduce, shape.all_reduces);
  std::vector<ModelWay> ways{sums.named("tensor parallel")};
  if (layout.dp > 1) {
    Steps crossings;
    crossings.add_crossings(layout, shape.gathers);
    crossings.add_shards(layout, lone_mixers(shape));
    ways.push_back(crossings.named(shape.has_experts() ? "DP attention, TP experts" : "DP attention"));
  }
  if (layout.ep > 1) ways.push_back(with_expert_parallelism(shape, parallel));
  return ways;
}

bool needs(const std::vector<ModelWay>& ways, Step step) {
  return std::ranges::any_of(ways, [&](const ModelWay& way) {
    return std::ranges::find(way.steps, step, &CountedStep::step) != way.steps.end();
  });
}

std::string in_words(const ModelWay& way) {
  std::string text;
  for (const auto& [step, times] : way.steps)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", times, name(step));
  return text;
}

PassTime total_of(const ModelWay& way, const StepTimes& times) {
  const auto sum = [&](const auto& of) {
    std::optional<double> total = 0.0;
    for (const auto& [step, count] : way.steps) {
      const std::optional<double> once = of[static_cast<std::size_t>(step)];
      if (!once) return std::optional<double>{};
      *total += static_cast<double>(count) * *once;
    }
    return total;
  };
  return {.weft = sum(times.weft), .peer = sum(times.peer)};
}

std::int64_t group_tokens(std::int64_t tokens, const ParallelLayout& layout) {
  return share_of(tokens, layout.dp);
}
std::int64_t rank_tokens(std::int64_t tokens, const ParallelLayout& layout) {
  return share_of(group_tokens(tokens, layout), layout.attn_tp());
}

}  // namespace weft::cli
