#include "support/top_k.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "oracle/top_k.hpp"
#include "support/bytes.hpp"
#include "support/columns.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

std::size_t columns_of(const TopKCase& c, int ranks) {
  return c.columns != 0 ? c.columns : c.shard * static_cast<std::size_t>(ranks);
}

// The bits of a column of all ranks, pads included.
std::uint32_t bits_of(const TopKCase& c, std::size_t row, std::size_t column, std::mt19937& random) {
  const oracle::Format format = oracle::format_of(c.type);
  const auto rounded = [&](double value) { return oracle::round_to(format, value); };
  const double place = static_cast<double>(column);
  switch (c.numbers) {
    case Numbers::any:
      return random() & (format.sign_bit() * 2 - 1);
    case Numbers::ties:
      return rounded(static_cast<double>(random() % 4) - 2);
    case Numbers::special: {
      const std::uint32_t sign = random() % 2 * format.sign_bit(), infinity = format.infinity();
      const std::uint32_t magnitudes[] = {0, 0, 1, infinity, infinity + 1, format.nan(), infinity - 1};
      return random() % 2 == 0 ? rounded(static_cast<double>(random() % 1000)) : sign | magnitudes[random() % 7];
    }
    case Numbers::rising:
      return rounded(place - 100);
    case Numbers::falling:
      return rounded(100 - place);
    case Numbers::crowded:
      return rounded(column / 40 == (row * 3 + 1) % 7 ? 100 + static_cast<double>(random() % 50) : -place);
  }
  return 0;
}

}  // namespace

std::string describe(const TopKCase& c) {
  return fmt::format("the {} largest of {} rows of {}[{}] of {} columns{}, numbers {}, gap {}, shift {}", c.k, c.rows,
                     name(c.type), c.shard, c.columns, c.even ? " evenly" : "", static_cast<int>(c.numbers), c.gap,
                     c.shift);
}

std::vector<TopKCase> top_k_cases(int ranks) {
  std::vector<TopKCase> all;
  for (const Numbers numbers :
       {Numbers::any, Numbers::ties, Numbers::special, Numbers::rising, Numbers::falling, Numbers::crowded}) {
    for (const std::size_t k : {1u, 2u, 7u, 33u, 64u}) {
      const DataType type = k == 7 ? DataType::f16 : k == 2 ? DataType::f32 : DataType::bf16;
      all.push_back({.rows = 3, .shard = 600, .k = k, .type = type, .numbers = numbers});
    }
    // Parts of rows; the last rank has pads.
    const std::size_t shard = 16'400, columns = shard * static_cast<std::size_t>(ranks) - 8'300;
    all.push_back({.rows = 2, .shard = shard, .columns = columns, .k = 5, .numbers = numbers});
    all.push_back({.rows = 1, .shard = shard, .columns = columns, .numbers = numbers});
  }
  const auto all_ranks = static_cast<std::size_t>(ranks);
  // Whole shards of pads; as many candidates as columns.
  all.push_back({.rows = 2, .shard = 8, .columns = 5, .k = 5, .numbers = Numbers::special});
  all.push_back({.rows = 2, .shard = 3, .k = std::min<std::size_t>(3 * all_ranks, 64), .numbers = Numbers::special});
  all.push_back({.rows = 5, .shard = 131, .k = 9, .type = DataType::f16, .gap = 3, .shift = 1});
  all.push_back({.rows = 5, .shard = 131, .k = 9, .type = DataType::f32, .gap = 1, .shift = 3, .no_values = true});
  all.push_back({.rows = 0, .shard = 64, .k = 2});
  // Shards of which some have one column more, with pads; fewer columns than ranks; parts of rows.
  all.push_back({.rows = 3, .shard = 603, .columns = 600 * all_ranks + 1, .even = true, .k = 9});
  all.push_back({.rows = 2, .shard = 5, .columns = std::max<std::size_t>(all_ranks - 1, 1), .even = true});
  all.push_back({.rows = 1, .shard = 16'400, .columns = 16'390 * all_ranks + 1, .even = true, .k = 5});
  for (const Launch launch : {Launch{.blocks = 2, .threads = 32}, Launch{.blocks = 2, .threads = 96}}) {
    all.push_back({.rows = 4, .shard = 500, .k = 40, .numbers = Numbers::ties, .launch = launch});
    all.push_back({.rows = 4, .shard = 500, .k = 1, .numbers = Numbers::ties, .launch = launch});
  }
  return all;
}

std::vector<TopKCase> few_top_k_cases(int ranks) {
  const std::size_t columns = 40 * static_cast<std::size_t>(ranks) - 9;
  return {{.rows = 3, .shard = 40, .columns = columns, .k = 7, .numbers = Numbers::ties},
          {.rows = 1, .shard = 33, .k = 1, .type = DataType::f32},
          {.rows = 2, .shard = 21, .k = 2, .type = DataType::f16, .numbers = Numbers::special, .gap = 3, .shift = 1},
          {.rows = 9, .shard = 24, .k = 8, .numbers = Numbers::ties, .no_values = true}};
}

PreparedTopK prepare(const TopKCase& c, int ranks, int rank) {
  const std::size_t all = c.shard * static_cast<std::size_t>(ranks), columns = columns_of(c, ranks);
  const std::size_t element = size_of(c.type), stride = c.shard + c.gap;
  PreparedTopK prepared{.c = c,
                        .input = Bytes(256 + c.shift * element + c.rows * stride * element),
                        .input_begin = c.shift * element,
                        .values = {},
                        .indices = {}};
  std::mt19937 random(static_cast<std::uint32_t>(c.k * 31 + c.shard) + c.seed);
  std::span<std::byte> input = std::span(prepared.input).subspan(prepared.input_begin);
  prepared.values.resize(c.rows * c.k * element);
  prepared.indices.resize(c.rows * c.k * sizeof(std::int32_t));
  // Pads behind a rank's columns are columns of the next one, which are larger or smaller at random.
  const RowRange own = columns_of_rank(columns, c.shard, c.even, ranks, rank);
  for (std::size_t row = 0; row < c.rows; ++row) {
    Bytes whole(all * element);
    for (std::size_t column = 0; column < all; ++column) {
      const std::uint32_t bits = bits_of(c, row, column, random);
      oracle::put(whole, c.type, column, bits);
      if (column >= own.begin && column < own.begin + c.shard)
        oracle::put(input, c.type, row * stride + column - own.begin, bits);
    }
    const auto found = oracle::largest_of(std::span(whole).first(columns * element), c.type, c.k);
    for (std::size_t i = 0; i < c.k; ++i) {
      oracle::put(prepared.values, c.type, row * c.k + i, found[i].bits);
      oracle::put(prepared.indices, DataType::i32, row * c.k + i, found[i].column);
    }
  }
  return prepared;
}

TopKColumnsArgs arguments_of(const PreparedTopK& prepared, const std::byte* memory, std::byte* values,
                             std::byte* indices, Stream stream) {
  const TopKCase& c = prepared.c;
  return {.input = memory + prepared.input_begin,
          .values = c.no_values ? nullptr : values,
          .indices = reinterpret_cast<std::int32_t*>(indices),
          .rows = c.rows,
          .k = c.k,
          .shard_columns = c.shard,
          .columns = c.columns,
          .even_shards = c.even,
          .input_stride = c.shard + c.gap,
          .type = c.type,
          .stream = stream,
          .launch = c.launch};
}

void expect_largest(const PreparedTopK& prepared, std::span<const std::byte> values,
                    std::span<const std::byte> indices) {
  const TopKCase& c = prepared.c;
  for (std::size_t i = 0; i < c.rows * c.k; ++i) {
    const auto column = oracle::get(indices, DataType::i32, i),
               wanted = oracle::get(prepared.indices, DataType::i32, i);
    const auto where = [&] { return fmt::format("{}: candidate {} of row {}", describe(c), i % c.k, i / c.k); };
    if (column != wanted) ensure(false, fmt::format("{} is column {}, not {}", where(), column, wanted));
    if (c.no_values) continue;
    const auto got = oracle::get(values, c.type, i), bits = oracle::get(prepared.values, c.type, i);
    if (got != bits) ensure(false, fmt::format("{} is {:x}, not {:x}", where(), got, bits));
  }
}

HostTopK::HostTopK(const PreparedTopK& first)
    : first_(first), input_(first.input.size(), 0), values_(first.values.size(), 0), indices_(first.indices.size(), 0) {
  fill(first);
}
void HostTopK::fill(const PreparedTopK& next) {
  copy_bytes(next.input, input_.content());
  for (Guarded* const output : {&values_, &indices_}) fill_bytes(output->content(), Guarded::kCanary);
}
void HostTopK::call(const Group& group) {
  TopKColumnsArgs args =
      arguments_of(first_, input_.content().data(), values_.content().data(), indices_.content().data(), nullptr);
  args.launch = {};  // grids are the GPU's
  top_k_columns(group, args);
}
void HostTopK::check(const PreparedTopK& next) {
  expect_largest(next, values_.content(), indices_.content());
  for (Guarded* tensor : {&input_, &values_, &indices_}) {
    ensure(tensor->damage().empty(), describe(next.c) + ": " + tensor->damage());
  }
}

void run_on_cpu_rank(const Group& group, const TopKCase& c) {
  const PreparedTopK prepared = prepare(c, group.size(), group.rank());
  HostTopK host(prepared);
  host.call(group);
  host.check(prepared);
}

}  // namespace weft::test
