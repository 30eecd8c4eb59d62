#include "support/case_lists.hpp"

#include <random>

#include "protocol/channel.hpp"
#include "wire/payload.hpp"

namespace weft::test {

std::size_t piece_of(Algorithm algorithm, DataType type, int ranks) {
  const std::size_t pack = detail::payload_bytes(type) / size_of(type), size = static_cast<std::size_t>(ranks);
  const detail::RegionLayout layout = detail::make_layout(static_cast<std::uint32_t>(ranks), 1024, 2048);
  if (algorithm == Algorithm::one_shot) return layout.one_shot_packs * pack;
  if (algorithm == Algorithm::two_shot) return layout.two_shot_packs * pack * size;
  return layout.pipeline_packs * 16 / size_of(type) * size;
}

std::vector<Case> cases_around_pieces(int ranks) {
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm : kAlgorithms) {
      const std::size_t pack = detail::payload_bytes(type) / size_of(type);
      const std::size_t all = pack * static_cast<std::size_t>(ranks), piece = piece_of(algorithm, type, ranks);
      for (const std::size_t count :
           {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{3}, pack - 1, pack, pack + 1, all - 1, all,
            all + 1, 5 * all - pack - 1, piece - 1, piece, piece + 1, 2 * piece + pack + 1}) {
        const auto seed = static_cast<std::uint32_t>(cases.size());
        cases.push_back({.count = count,
                         .type = type,
                         .op = mostly_sum(seed),
                         .algorithm = algorithm,
                         .in_place = seed % 2 == 0,
                         .seed = seed});
      }
    }
  }
  return cases;
}

namespace {

// Sums meet everything. Averages share all but their last step with them; the others choose among special values.
std::vector<Fill> fills_of(ReduceOp op) {
  if (op == ReduceOp::sum) return {Fill::integers, Fill::random, Fill::bits, Fill::special};
  if (op == ReduceOp::avg) return {Fill::random, Fill::special};
  return {Fill::special};
}

}  // namespace

std::vector<Case> cases_of_all_data(std::span<const std::size_t> counts) {
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const ReduceOp op : kOps) {
      for (const Algorithm algorithm :
           {Algorithm::automatic, Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined}) {
        for (const Fill fill : fills_of(op)) {
          for (const std::size_t count : counts)
            cases.push_back({.count = count, .type = type, .op = op, .algorithm = algorithm, .fill = fill, .seed = 5});
        }
      }
    }
  }
  return cases;
}

std::vector<Case> cases_of_all_alignments() {
  std::vector<Case> cases;
  for (const DataType type : kTypes) {
    for (const Algorithm algorithm : kAlgorithms) {
      for (std::size_t shift = 0; shift < 16 / size_of(type); ++shift) {
        for (const bool in_place : {false, true}) {
          cases.push_back({.count = 67,
                           .type = type,
                           .algorithm = algorithm,
                           .in_place = in_place,
                           .input_shift = (shift * 5 + 1) % 8,
                           .output_shift = shift,
                           .seed = static_cast<std::uint32_t>(shift)});
        }
      }
    }
  }
  return cases;
}

std::vector<Case> mixed_cases(int count, std::uint32_t seed, const Mix& mix) {
  std::mt19937 random(seed);
  std::vector<Case> cases;
  for (int i = 0; i < count; ++i) {
    const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
    const bool whole = pick(2) == 0;  // nothing but whole, aligned packs
    const std::size_t elements = pick(4) == 0 ? pick(mix.most) : pick(mix.few);
    cases.push_back({.count = whole ? elements / 8 * 8 : elements,
                     .type = kTypes[pick(std::size(kTypes))],
                     .op = kOps[pick(std::size(kOps))],
                     .algorithm = static_cast<Algorithm>(pick(4)),
                     .fill = static_cast<Fill>(pick(4)),
                     .in_place = pick(2) == 0,
                     .input_shift = whole ? 0 : pick(8),
                     .output_shift = whole ? 0 : pick(8),
                     .seed = static_cast<std::uint32_t>(i)});
    if (mix.most_blocks != 0)
      cases.back().launch = {.blocks = 2 + static_cast<int>(pick(mix.most_blocks - 1)),
                             .threads = 32 * (1 + static_cast<int>(pick(8)))};
  }
  return cases;
}

}  // namespace weft::test
