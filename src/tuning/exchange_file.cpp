#include "tuning/exchange_file.hpp"

#include "base/limits.hpp"
#include "tuning/token_file.hpp"

namespace weft::detail {
namespace {

// As ops/moe and ops/moves have them: threads that both ways and both halves can take.
constexpr std::uint32_t kMostHidden = 1 << 20, kMostExpertsOfRank = 4096, kMostEntries = 32;
constexpr std::uint32_t kLeastThreads = 128, kMostThreads = 512;

constexpr RowLayout kLayouts[] = {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major,
                                  RowLayout::rank_compact};
constexpr RowCast kCasts[] = {RowCast::none, RowCast::fp8, RowCast::fp8_ue8m0, RowCast::fp8_pow2};

struct GridKeys {
  const char *blocks, *threads;
  StepGrid ExchangeStep::*grid;
};
constexpr GridKeys kGridKeys[] = {{"dispatch_blocks", "dispatch_threads", &ExchangeStep::dispatch},
                                  {"combine_blocks", "combine_threads", &ExchangeStep::combine}};

// The one of `all` whose word the file has.
template <class Value, class Word>
Value read_word(const FileNode& node, const char* key, std::span<const Value> all, Word word) {
  std::vector<std::string_view> words;
  for (const Value one : all) words.push_back(word(one));
  const std::string text = node.text(key, words);
  return all[static_cast<std::size_t>(std::ranges::find(words, text) - words.begin())];
}

// Slots come first. So an exchange has slots for the tokens of the last step that has them.
ExchangeStep read_exchange_step(const FileNode& node, const ExchangeSize& size, const ExchangeStep* before) {
  std::vector<std::string_view> keys{"up_to_tokens", "path"};
  for (const GridKeys& of : kGridKeys) keys.insert(keys.end(), {of.blocks, of.threads});
  node.allow(keys);
  constexpr RowPath kPaths[] = {RowPath::slots, RowPath::ring};
  const bool ring_alone =
      size.layout == RowLayout::rank_compact || (before != nullptr && before->path == RowPath::ring);
  ExchangeStep step;
  step.path = read_word(node, "path", std::span<const RowPath>(kPaths).subspan(ring_alone ? 1 : 0),
                        [](RowPath path) { return name(path); });
  for (const auto& [blocks, threads, grid] : kGridKeys) {
    if (node.has(blocks)) (step.*grid).blocks = static_cast<int>(node.number(blocks, 2, kMaxBlocks));
    if (node.has(threads))
      (step.*grid).threads = static_cast<int>(node.number(threads, kLeastThreads, kMostThreads, kLeastThreads));
  }
  return step;
}

}  // namespace

ExchangeSize read_exchange_size(const FileNode& table) {
  const auto number = [&](const char* key, std::uint32_t most) {
    return static_cast<std::uint32_t>(table.number(key, 1, most));
  };
  return {.hidden = number("hidden", kMostHidden),
          .local_experts = number("local_experts", kMostExpertsOfRank),
          .top_k = number("top_k", kMostEntries),
          .layout = read_word(table, "layout", std::span<const RowLayout>(kLayouts),
                              [](RowLayout layout) { return name(layout); }),
          .cast = read_word(table, "cast", std::span<const RowCast>(kCasts), cast_word)};
}

std::vector<ExchangeStep> read_exchange_steps(const FileNode& table, const ExchangeSize& size) {
  return read_token_steps<ExchangeStep>(
      table, [&](const FileNode& node, const ExchangeStep* before) { return read_exchange_step(node, size, before); });
}

std::string to_json(const ExchangeSize& size) {
  return fmt::format(R"("hidden": {}, "local_experts": {}, "top_k": {}, "layout": "{}", "cast": "{}",)", size.hidden,
                     size.local_experts, size.top_k, name(size.layout), cast_word(size.cast));
}

std::string to_json(const ExchangeStep& step) {
  std::string out = fmt::format("{{{}\"path\": \"{}\"", up_to_json(step), name(step.path));
  for (const auto& [blocks, threads, grid] : kGridKeys) {
    if ((step.*grid).blocks != 0) out += fmt::format(", \"{}\": {}", blocks, (step.*grid).blocks);
    if ((step.*grid).threads != 0) out += fmt::format(", \"{}\": {}", threads, (step.*grid).threads);
  }
  return out + "}";
}

std::string in_words(const ExchangeSize& size) {
  return fmt::format("{} columns, {} experts on each rank, top {}, {} rows{}", size.hidden, size.local_experts,
                     size.top_k, name(size.layout),
                     size.cast == RowCast::none ? "" : fmt::format(", cast {}", cast_word(size.cast)));
}

}  // namespace weft::detail
