#include "support/columns.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "numeric/element_map.hpp"
#include "oracle/columns.hpp"
#include "oracle/number.hpp"
#include "support/bytes.hpp"
#include "support/guarded.hpp"
#include "support/ranks.hpp"

namespace weft::test {
namespace {

// Sizes in elements, and the bytes of an element of the input and of the output.
struct ColumnShape {
  std::size_t columns, input_stride, output_stride, element, wide;
};
ColumnShape shape_of(const ColumnCase& c, int ranks) {
  const std::size_t columns = c.columns != 0 ? c.columns : c.shard * static_cast<std::size_t>(ranks);
  const std::size_t element = size_of(c.type);
  return {columns, c.shard + c.input_gap, columns + c.output_gap, element, c.output_f32 ? 4 : element};
}

// Numbers of every size for one rank, with NaN, infinities and zeros of both signs among them.
Bytes shard_of(const ColumnCase& c, int rank) {
  std::mt19937 random(c.seed * 131 + static_cast<std::uint32_t>(rank));
  Bytes shard(c.rows * c.shard * size_of(c.type));
  if (c.soft_cap == 0) {
    for (std::byte& byte : shard) byte = static_cast<std::byte>(random());
    return shard;
  }
  std::normal_distribution<double> logits(0, 30);
  const oracle::Format format = oracle::format_of(c.type);
  for (std::size_t i = 0; i < c.rows * c.shard; ++i) {
    const double special[] = {NAN, INFINITY, -INFINITY, 0.0, -0.0, 1e-30};
    const double value = random() % 8 == 0 ? special[random() % 6] : logits(random);
    oracle::put(shard, c.type, i, oracle::round_to(format, value));
  }
  return shard;
}

template <class... T>
void check(bool good, const ColumnCase& c, fmt::format_string<T...> message, T&&... values) {
  if (!good) ensure(false, describe(c) + ": " + fmt::format(message, std::forward<T>(values)...));
}

oracle::ColumnChange change_of(const ColumnCase& c) {
  return {.from = c.type, .to = c.output_f32 ? DataType::f32 : c.type, .scale = c.scale, .soft_cap = c.soft_cap};
}

// The bits that every rank must have, on CPUs and GPUs: those of the library's function on this CPU.
std::uint64_t changed_here(const ColumnCase& c, std::uint64_t bits) {
  const detail::ElementMap map{.from = c.type,
                               .to = c.output_f32 ? DataType::f32 : c.type,
                               .factor = c.soft_cap != 0 ? c.scale / c.soft_cap : c.scale,
                               .soft_cap = c.soft_cap};
  std::uint32_t words[8];
  map.change({{static_cast<std::uint32_t>(bits), 0, 0, 0}}, words);
  return map.to == DataType::f32 ? words[0] : words[0] & 0xffff;
}

std::vector<RowRange> slots_in(const ColumnCase& c) {
  return c.padding == Padding::per_rank ? slots_of(c.counts, c.slots) : slots_of(c.counts, c.padding, c.slot_rows);
}
// Rows that the output has room for, and one more, which stays as it is.
std::size_t rows_out(const PreparedColumns& prepared) {
  return prepared.output_rows() + (prepared.c.to_groups() ? 1 : 0);
}

}  // namespace

RowRange columns_of_rank(std::size_t columns, std::size_t shard, bool even, int ranks, int rank) {
  const auto n = static_cast<std::size_t>(ranks);
  std::size_t begin = 0, own = 0;
  for (std::size_t r = 0; r <= static_cast<std::size_t>(rank); ++r) {
    begin += own;
    own = std::min(even ? columns / n + (r < columns % n ? 1 : 0) : shard, columns - begin);
  }
  return {begin, begin + own};
}

std::string describe(const ColumnCase& c) {
  const std::string groups =
      fmt::format(", to groups of {} with {} rows, {} slots of {} {}{}", c.group_ranks, fmt::join(c.counts, " "),
                  name(c.padding), c.slot_rows, fmt::join(c.slots, " "), c.on_host ? ", counts on the host" : "");
  return fmt::format("{} rows of {}[{}], {} columns{}, f32 {}, scale {}, cap {}, gaps {} {}, shifts {} {}{}{}", c.rows,
                     name(c.type), c.shard, c.columns, c.even ? " evenly" : "", c.output_f32, c.scale, c.soft_cap,
                     c.input_gap, c.output_gap, c.input_shift, c.output_shift, c.in_place ? ", in place" : "",
                     c.to_groups() ? groups : "");
}

std::vector<ColumnCase> column_cases(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<ColumnCase> cases{
      {.rows = 0},
      {.shard = 0},
      {.rows = 1, .shard = 1},
      {.rows = 3, .shard = 16},
      {.rows = 3, .shard = 16, .columns = 16 * n - 8},
      {.rows = 5, .shard = 24, .columns = 24 * n - 3, .output_gap = 3},
      {.rows = 5, .shard = 24, .columns = 9, .output_gap = 7},
      {.rows = 4, .shard = 7},
      {.rows = 4,
       .shard = 7,
       .columns = 7 * n - 1,
       .input_gap = 1,
       .output_gap = 2,
       .input_shift = 3,
       .output_shift = 1},
      {.rows = 2, .shard = 11, .type = DataType::u8},
      {.rows = 3, .shard = 5, .type = DataType::i64},
      {.rows = 7, .shard = 1'000, .type = DataType::i32, .input_gap = 4, .output_gap = 8},
      {.rows = 33, .shard = 1'016},
      {.rows = 33, .shard = 1'016, .columns = 1'016 * n - 40},
      {.rows = 33, .shard = 1'016, .output_gap = 8, .in_place = true},
      {.rows = 19, .shard = 1'013, .type = DataType::f16},
      {.rows = 3, .shard = 16, .output_f32 = true},
      {.rows = 3, .shard = 16, .columns = 16 * n - 3, .output_f32 = true, .output_gap = 3},
      {.rows = 3, .shard = 7, .columns = 7 * n - 2, .type = DataType::f16, .output_f32 = true},
      {.rows = 2, .shard = 8, .type = DataType::f32, .output_f32 = true},
      {.rows = 4, .shard = 32, .scale = 0.0625f},
      {.rows = 4, .shard = 32, .type = DataType::f16, .scale = -3.0f},
      {.rows = 4, .shard = 32, .type = DataType::f32, .scale = 1.1f},
      {.rows = 9, .shard = 128, .soft_cap = 30.0f},
      {.rows = 9, .shard = 127, .output_f32 = true, .scale = 0.7f, .soft_cap = 30.0f},
      {.rows = 9, .shard = 128, .type = DataType::f32, .soft_cap = 50.0f},
      {.rows = 9, .shard = 128, .type = DataType::f16, .output_f32 = true, .soft_cap = 15.0f},
      {.rows = 31, .shard = 1'016, .output_f32 = true, .soft_cap = 30.0f},
      {.rows = 31, .shard = 1'016, .columns = 1'016 * n - 16, .scale = 2.0f},
      {.rows = 2, .shard = 1, .columns = 1, .even = true},
      {.rows = 3, .shard = 3, .columns = 3 * n - 1, .even = true, .output_gap = 2},
      {.rows = 5, .shard = 24, .columns = 16 * n, .even = true},
      {.rows = 5, .shard = 24, .columns = 16 * n + 1, .even = true, .input_gap = 8},
      {.rows = 9, .shard = 128, .columns = 120 * n, .even = true, .output_f32 = true, .soft_cap = 30.0f},
      {.rows = 4, .shard = 13, .columns = 12 * n + 1, .even = true, .type = DataType::f16, .output_f32 = true},
      {.rows = 33, .shard = 1'016, .columns = 1'008 * n, .even = true},
      {.rows = 33, .shard = 1'016, .columns = 1'015 * n + 1, .even = true},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].seed = static_cast<std::uint32_t>(i) + 1;
  return cases;
}

std::vector<ColumnCase> group_column_cases(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  const ColumnCase forms[] = {
      {.shard = 16},
      {.shard = 7, .columns = 7 * n - 1, .input_gap = 1, .output_gap = 2, .input_shift = 3, .output_shift = 1},
      {.shard = 24, .columns = 24 * n - 3, .output_f32 = true, .soft_cap = 30},
      {.shard = 5, .type = DataType::i64},
      {.shard = 1'016, .scale = 0.5f, .output_gap = 8},
      {.shard = 1'013, .type = DataType::f16},
      {.shard = 24, .columns = 16 * n, .even = true},
      {.shard = 9, .columns = 8 * n + 1, .even = true, .output_f32 = true, .scale = 0.5f},
  };
  const Padding kinds[] = {Padding::none, Padding::aligned, Padding::max, Padding::fixed, Padding::per_rank};
  std::vector<ColumnCase> cases;
  for (std::size_t sharing = 1; sharing <= n; ++sharing) {
    if (n % sharing != 0) continue;
    const std::size_t groups = n / sharing;
    for (std::size_t i = 0; i < std::size(forms) * 3; ++i) {
      ColumnCase c = forms[i % std::size(forms)];
      c.group_ranks = sharing;
      c.seed = static_cast<std::uint32_t>(200 + cases.size());
      std::mt19937 random(c.seed);
      for (std::size_t group = 0; group < groups; ++group)
        c.counts.push_back(static_cast<std::int32_t>(random() % 3 == 0 ? 0 : random() % 9));
      if (i % 4 == 3) c.counts[random() % groups] = 37;  // a busy one
      if (i == 5) c.counts.assign(groups, 0);
      c.padding = kinds[random() % std::size(kinds)];
      c.slot_rows = c.padding == Padding::aligned ? 4 : c.padding == Padding::fixed ? 40 : 0;
      if (c.padding == Padding::per_rank)
        for (const std::int32_t count : c.counts) c.slots.push_back(count + static_cast<std::int32_t>(random() % 3));
      c.on_host = i % 2 == 1;
      c.rows = slots_in(c).back().end;
      cases.push_back(c);
    }
  }
  return cases;
}

std::vector<ColumnCase> few_column_cases(int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<ColumnCase> cases{
      {.rows = 3, .shard = 16, .columns = 16 * n - 8},
      {.rows = 5, .shard = 24, .columns = 24 * n - 3, .output_gap = 3},
      {.rows = 4, .shard = 7, .input_gap = 1, .output_gap = 2, .input_shift = 3, .output_shift = 1},
      {.rows = 3, .shard = 120, .output_f32 = true, .scale = 0.7f},
      {.rows = 2, .shard = 5, .type = DataType::i64},
      {.rows = 3, .shard = 8, .columns = 7 * n + 1, .even = true},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) cases[i].seed = static_cast<std::uint32_t>(i) + 1;
  // To groups: every fourth of the list.
  const std::vector<ColumnCase> to_groups = group_column_cases(ranks);
  for (std::size_t i = 0; i < to_groups.size() && cases.size() < 10; i += 4) {
    if (to_groups[i].shard < 1'000) cases.push_back(to_groups[i]);
  }
  return cases;
}

PreparedColumns prepare(const ColumnCase& c, int ranks, int rank) {
  const auto [columns, input_stride, output_stride, element, wide] = shape_of(c, ranks);
  PreparedColumns prepared{.c = c, .ranks = ranks, .rank = rank, .input = {}, .output = {}, .expected = {}};
  prepared.input_begin = kGuard + c.input_shift * element;
  prepared.output_begin = kGuard + c.output_shift * wide;
  prepared.taken = {0, c.rows};
  if (c.to_groups()) {
    const std::size_t own = static_cast<std::size_t>(rank) / c.group_ranks, begin = slots_in(c)[own].begin;
    prepared.taken = {begin, begin + static_cast<std::size_t>(c.counts[own])};
  }
  prepared.input.assign(prepared.input_begin + c.rows * input_stride * element + kGuard, kNanCanary);
  prepared.output.assign(prepared.output_begin + rows_out(prepared) * output_stride * wide + kGuard, kNanCanary);
  const auto put = [](Bytes& memory, std::size_t at, std::uint64_t bits, std::size_t size) {
    std::memcpy(memory.data() + at, &bits, size);
  };
  const Bytes own = shard_of(c, rank);
  const std::size_t first = static_cast<std::size_t>(rank) * c.shard;
  for (std::size_t i = 0; i < c.rows * c.shard; ++i) {
    const std::size_t row = i / c.shard, column = i % c.shard;
    const std::uint64_t bits = oracle::get(own, c.type, i);
    put(prepared.input, prepared.input_begin + (row * input_stride + column) * element, bits, element);
    if (c.in_place) {
      put(prepared.output, prepared.output_begin + (row * output_stride + first + column) * element, bits, element);
    }
  }
  prepared.expected = prepared.output;
  for (int from = 0; from < ranks; ++from) {
    const Bytes shard = shard_of(c, from);
    const RowRange kept = columns_of_rank(columns, c.shard, c.even, ranks, from);
    for (std::size_t i = 0; i < c.rows * c.shard; ++i) {
      const std::size_t column = kept.begin + i % c.shard;
      const std::size_t row = i / c.shard;
      if (column >= kept.end || row < prepared.taken.begin || row >= prepared.taken.end) continue;
      put(prepared.expected, prepared.output_begin + ((row - prepared.taken.begin) * output_stride + column) * wide,
          oracle::get(shard, c.type, i), element);
    }
  }
  return prepared;
}

std::vector<std::int32_t> numbers_of(const ColumnCase& c) {
  std::vector<std::int32_t> numbers = c.counts;
  numbers.insert(numbers.end(), c.slots.begin(), c.slots.end());
  return numbers;
}

void make_column_call(const Group& group, const PreparedColumns& prepared, const ColumnMemory& memory) {
  const ColumnCase& c = prepared.c;
  const ColumnShape shape = shape_of(c, prepared.ranks);
  const auto fill = [&](auto& args) {
    args.input = memory.input + prepared.input_begin;
    args.output = memory.output + prepared.output_begin;
    args.shard_columns = c.shard;
    args.columns = c.columns;
    args.even_shards = c.even;
    args.input_stride = std::max<std::size_t>(shape.input_stride, 1);
    args.output_stride = std::max<std::size_t>(shape.output_stride, 1);
    args.type = c.type;
    args.output_f32 = c.output_f32;
    args.scale = c.scale;
    args.soft_cap = c.soft_cap;
    args.stream = memory.stream;
    args.tag = c.seed;
  };
  if (!c.to_groups()) {
    AllGatherColumnsArgs args{.rows = c.rows};
    fill(args);
    if (c.in_place) {
      args.input =
          static_cast<std::byte*>(args.output) + static_cast<std::size_t>(prepared.rank) * c.shard * size_of(c.type);
      args.input_stride = args.output_stride;
    }
    return all_gather_columns(group, args);
  }
  const std::vector<std::int32_t> here = numbers_of(c);
  const std::int32_t* const numbers = c.on_host ? here.data() : memory.numbers;
  AllToAllColumnsArgs args{.group_ranks = c.group_ranks,
                           .counts = {.rows = numbers,
                                      .padding = c.padding,
                                      .slot_rows = c.slot_rows,
                                      .slots = c.slots.empty() ? nullptr : numbers + c.counts.size(),
                                      .on_host = c.on_host},
                           .input_rows = c.rows,
                           .output_rows = prepared.output_rows()};
  fill(args);
  all_to_all_columns(group, args);
}

void expect_columns(const PreparedColumns& prepared, std::span<const std::byte> output) {
  const ColumnCase& c = prepared.c;
  const oracle::ColumnChange change = change_of(c);
  if (change.keeps_bits() && same_bytes(output, prepared.expected)) return;
  const auto [columns, input_stride, output_stride, element, wide] = shape_of(c, prepared.ranks);
  const std::size_t stride = std::max<std::size_t>(output_stride, 1);
  for (std::size_t at = 0; at < prepared.expected.size();) {
    const std::size_t in = at - prepared.output_begin, column = at >= prepared.output_begin ? in / wide % stride : 0;
    const bool inside = at >= prepared.output_begin && in < prepared.taken.size() * stride * wide && column < columns;
    if (!inside) {
      check(output[at] == prepared.expected[at], c, "byte {} outside of the columns was overwritten", at);
      ++at;
      continue;
    }
    const std::uint64_t got = oracle::get(output.subspan(at), change.to, 0);
    const std::uint64_t sent = oracle::get(std::span(prepared.expected).subspan(at), c.type, 0);
    const oracle::RightBits right = oracle::changed_element(change, sent);
    const bool same = change.keeps_bits() || got == changed_here(c, sent);
    check(same && right.contain(got), c, "row {} column {} is {:x} and not {:x}", in / wide / stride, column, got,
          right.nearest);
    at += wide;
  }
}

HostColumns::HostColumns(const PreparedColumns& first)
    : first_(first), input_(first.input.size()), output_(first.output.size()), numbers_(numbers_of(first.c)) {
  fill(first);
}
void HostColumns::fill(const PreparedColumns& next) {
  copy_bytes(next.input, input_.span());
  copy_bytes(next.output, output_.span());
  std::ranges::copy(numbers_of(next.c), numbers_.begin());  // recordings keep the address
}
void HostColumns::call(const Group& group) {
  make_column_call(group, first_, {input_.span().data(), output_.span().data(), numbers_.data(), nullptr});
}
void HostColumns::check(const PreparedColumns& next) {
  expect_columns(next, output_.span());
  weft::test::check(same_bytes(input_.span(), next.input), next.c, "the input was changed");
}

void run_on_cpu_rank(const Group& group, const ColumnCase& c, std::byte* symmetric) {
  const PreparedColumns prepared = prepare(c, group.size(), group.rank());
  Guarded input(prepared.input.size(), 0), output(prepared.output.size(), 0);
  copy_bytes(prepared.input, input.content());
  std::byte* const to = symmetric != nullptr ? symmetric : output.content().data();
  copy_bytes(prepared.output, {to, prepared.output.size()});
  const std::vector<std::int32_t> numbers = numbers_of(c);
  make_column_call(group, prepared, {input.content().data(), to, numbers.data(), nullptr});
  expect_columns(prepared, {to, prepared.output.size()});
  check(same_bytes(input.content(), prepared.input), c, "the input was changed");
}

}  // namespace weft::test
