#include "support/counts.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

#include "oracle/moves.hpp"

namespace weft::test {
namespace {

constexpr std::int32_t kCountCanary = -77'777;

// Any bits, including the bits at which slots rest.
std::vector<std::int32_t> numbers_of(const CountsCase& c, int rank) {
  constexpr std::int32_t special[] = {-1, 0, 1, std::numeric_limits<std::int32_t>::min(),
                                      std::numeric_limits<std::int32_t>::max()};
  std::mt19937 random(c.seed * 1000 + static_cast<std::uint32_t>(rank));
  std::vector<std::int32_t> numbers{c.rows.at(static_cast<std::size_t>(rank) / c.group_ranks)};
  while (numbers.size() < c.columns) {
    const auto choice = random() % 8;
    numbers.push_back(choice < std::size(special) ? special[choice] : static_cast<std::int32_t>(random()));
  }
  return numbers;
}

std::size_t words_of(const CountsCase& c, int ranks) {
  return GatheredCounts{.ranks = static_cast<std::size_t>(ranks), .columns = c.columns, .group_ranks = c.group_ranks}
      .words();
}

}  // namespace

std::string describe(const CountsCase& c) {
  return fmt::format("rows [{}], columns {}, group_ranks {}, sharding {}{}, padding {} of {}, seed {}",
                     fmt::join(c.rows, " "), c.columns, c.group_ranks, name(c.sharding),
                     c.split_slots ? " of slots" : "", name(c.padding), c.slot_rows, c.seed);
}

std::vector<std::int32_t> gathered(const CountsCase& c, int ranks) {
  std::vector<std::int32_t> said;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<std::int32_t> numbers = numbers_of(c, rank);
    said.insert(said.end(), numbers.begin(), numbers.end());
  }
  return oracle::table_of_counts({.columns = c.columns,
                                  .group_ranks = c.group_ranks,
                                  .sharding = c.sharding,
                                  .split_slots = c.split_slots,
                                  .padding = c.padding,
                                  .slot_rows = c.slot_rows},
                                 said);
}

std::array<CountsMemory, 3> counts_memory(const CountsCase& c, int ranks, int rank) {
  std::array<CountsMemory, 3> memory;
  const std::size_t words = words_of(c, ranks);
  const std::size_t sizes[] = {c.columns, words, words};
  for (std::size_t i = 0; i < memory.size(); ++i) {
    memory[i].before.assign(sizes[i] + 2 * kCountGuard, kCountCanary);
    if (i == 0) std::ranges::copy(numbers_of(c, rank), memory[i].before.begin() + kCountGuard);
    memory[i].after = memory[i].before;
  }
  const std::vector<std::int32_t> wanted = gathered(c, ranks);
  std::ranges::copy(wanted, memory[1].after.begin() + kCountGuard);
  if (c.host) std::ranges::copy(wanted, memory[2].after.begin() + kCountGuard);
  return memory;
}

void issue(const Group& group, const CountsCase& c, const std::array<std::int32_t*, 3>& memory, Stream stream) {
  all_gather_counts(group, {.input = memory[0] + kCountGuard,
                            .output = memory[1] + kCountGuard,
                            .host_output = c.host ? memory[2] + kCountGuard : nullptr,
                            .columns = c.columns,
                            .group_ranks = c.group_ranks,
                            .sharding = c.sharding,
                            .split_slots = c.split_slots,
                            .padding = c.padding,
                            .slot_rows = c.slot_rows,
                            .stream = stream,
                            .tag = c.tag});
}

void expect_after(const CountsCase& c, const CountsMemory& memory, const std::int32_t* got) {
  const auto [wanted, found] = std::mismatch(memory.after.begin(), memory.after.end(), got);
  if (wanted == memory.after.end()) return;
  throw std::runtime_error(fmt::format("{}: word {} of {} is {} instead of {}", describe(c),
                                       wanted - memory.after.begin() - static_cast<std::ptrdiff_t>(kCountGuard),
                                       memory.after.size() - 2 * kCountGuard, *found, *wanted));
}

void run_on_cpu_rank(const Group& group, const CountsCase& c) {
  const auto memory = counts_memory(c, group.size(), group.rank());
  std::array<std::vector<std::int32_t>, 3> mine;
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = memory[i].before;
  issue(group, c, {mine[0].data(), mine[1].data(), mine[2].data()}, nullptr);
  for (std::size_t i = 0; i < mine.size(); ++i) expect_after(c, memory[i], mine[i].data());
}

std::vector<CountsCase> counts_cases(int ranks) {
  std::vector<CountsCase> cases;
  std::mt19937 random(static_cast<unsigned>(ranks));
  const auto n = static_cast<std::size_t>(ranks);
  for (std::size_t group_ranks = 1; group_ranks <= n; ++group_ranks) {
    if (n % group_ranks != 0) continue;
    for (const Padding padding : {Padding::none, Padding::aligned, Padding::max, Padding::fixed}) {
      for (const std::size_t columns :
           {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{7}, std::size_t{64}}) {
        const auto seed = static_cast<std::uint32_t>(cases.size());
        std::vector<std::int32_t> rows(n / group_ranks);
        for (std::int32_t& one : rows) one = static_cast<std::int32_t>(seed % 7 == 0 ? 0 : random() % 23);
        if (seed % 5 == 1) rows[seed % rows.size()] = 2'000'000;
        cases.push_back({.rows = rows,
                         .columns = columns,
                         .group_ranks = group_ranks,
                         .sharding = seed % 2 == 0 ? Sharding::balanced : Sharding::ceil,
                         .split_slots = seed % 3 == 0,
                         .padding = padding,
                         .slot_rows = padding == Padding::fixed ? 2'000'000u : 6u,
                         .host = seed % 4 != 3,
                         .seed = seed});
      }
    }
  }
  return cases;
}

std::vector<CountsMisfit> counts_misfits() {
  constexpr std::int32_t most = std::numeric_limits<std::int32_t>::max();
  return {
      {"Negative", "the count of rank 2 is -1, allowed is 0 or more", {1, 1, -1, 1}},
      {"FixedSlotTooSmall", "the count of rank 1 is 5, and its slot has 4 rows", {1, 5, 1, 1}, Padding::fixed, 4},
      {"UnlikeInAGroup",
       "the count of rank 3 is 3, and that of its group's first rank 2",
       {3, 3, 2, 3},
       Padding::none,
       0,
       2},
      {"OffsetsBeyondTheirType", "all slots together have 2147483648 rows, allowed are 2147483647", {most, 1, 0, 0}},
      {"PadsBeyondTheType",
       "all slots together have 2147483648 rows, allowed are 2147483647",
       {most / 4 + 1, 0, 0, 0},
       Padding::max}};
}

}  // namespace weft::test
