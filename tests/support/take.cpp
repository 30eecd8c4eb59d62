#include "support/take.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <stdexcept>

#include "oracle/moves.hpp"
#include "support/bytes.hpp"
#include "support/guarded.hpp"

namespace weft::test {
namespace {

TakeMemory take_memory_of(std::size_t bytes, std::size_t shift) {
  const Bytes canaries((kGuard + shift + bytes + kGuard + kGuard - 1) / kGuard * kGuard, kNanCanary);
  return {.before = canaries, .after = canaries, .begin = kGuard + shift};
}

void put_numbers(TakeMemory& counts, const std::vector<std::int32_t>& rows, const std::vector<std::int32_t>& given) {
  std::vector<std::int32_t> numbers = rows;
  numbers.insert(numbers.end(), given.begin(), given.end());
  std::memcpy(counts.before.data() + counts.begin, numbers.data(), numbers.size() * 4);
}

}  // namespace

std::string describe(const TakeCase& c) {
  return fmt::format(
      "slot {} of [{}], shard {} of {} {}{}, {} slots of {} [{}], rows of {} bytes, gaps {} {}, shifts {} {}, {} rows "
      "spare",
      c.slot, fmt::join(c.rows, " "), c.shard, c.shards, name(c.sharding), c.split_slots ? " of slots" : "",
      name(c.kind), c.slot_rows, fmt::join(c.given, " "), c.row_bytes, c.input_gap, c.output_gap, c.input_shift,
      c.output_shift, c.spare_rows);
}

PreparedTake prepare(const TakeCase& c) {
  const std::vector<std::size_t> rows(c.rows.begin(), c.rows.end());
  const std::vector<oracle::Place> slots = oracle::places_of(rows, c.kind, c.slot_rows, c.given);
  const auto [first, taken] = oracle::taken_of(slots, c.slot, c.shards, c.shard, c.sharding, c.split_slots);
  const std::size_t input_stride = c.row_bytes + c.input_gap, output_stride = c.row_bytes + c.output_gap;
  PreparedTake take{.c = c, .memory = {}, .input_rows = oracle::rows_of(slots), .output_rows = taken + c.spare_rows};
  take.memory = {take_memory_of(take.input_rows * input_stride, c.input_shift),
                 take_memory_of(take.output_rows * output_stride, c.output_shift),
                 take_memory_of((c.rows.size() + c.given.size()) * 4, 0)};
  auto& [input, output, counts] = take.memory;
  std::mt19937 random(c.seed);
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    for (std::size_t row = 0; row < rows[slot]; ++row) {
      std::byte* const to = input.before.data() + input.begin + (slots[slot].begin + row) * input_stride;
      for (std::size_t i = 0; i < c.row_bytes; ++i) to[i] = static_cast<std::byte>(random());
    }
  }
  input.after = input.before;
  for (std::size_t row = 0; row < take.output_rows; ++row) {
    std::byte* const to = output.after.data() + output.begin + row * output_stride;
    const std::byte* const from = input.before.data() + input.begin + (first + row) * input_stride;
    if (row < taken) std::copy_n(from, c.row_bytes, to);
    if (row >= taken) fill_bytes({to, c.row_bytes}, std::byte{0});
  }
  put_numbers(counts, c.rows, c.given);
  counts.after = counts.before;
  return take;
}

void issue(const Group& group, const PreparedTake& take, const std::array<std::byte*, 3>& memory, Stream stream) {
  const TakeCase& c = take.c;
  const auto at = [&](std::size_t i) { return memory[i] + take.memory[i].begin; };
  const auto* const numbers = reinterpret_cast<const std::int32_t*>(at(2));
  take_rows(group, {.input = at(0),
                    .output = at(1),
                    .row_bytes = c.row_bytes,
                    .input_stride = c.row_bytes + c.input_gap,
                    .output_stride = c.row_bytes + c.output_gap,
                    .counts = {.rows = numbers,
                               .sharding = c.sharding,
                               .padding = c.kind,
                               .slot_rows = c.slot_rows,
                               .slots = c.given.empty() ? nullptr : numbers + c.rows.size()},
                    .slots = c.rows.size(),
                    .slot = c.slot,
                    .shards = c.shards,
                    .shard = c.shard,
                    .split_slots = c.split_slots,
                    .input_rows = take.input_rows,
                    .output_rows = take.output_rows,
                    .stream = stream});
}

void expect_after(const PreparedTake& take, std::size_t index, const std::byte* got) {
  const TakeMemory& memory = take.memory[index];
  const std::size_t at = first_difference(memory.after, {got, memory.after.size()});
  if (at == memory.after.size()) return;
  throw std::runtime_error(fmt::format("{}: byte {} of memory {} is {:#04x} instead of {:#04x}", describe(take.c),
                                       static_cast<std::ptrdiff_t>(at) - static_cast<std::ptrdiff_t>(memory.begin),
                                       index, static_cast<int>(got[at]), static_cast<int>(memory.after[at])));
}

HostTake::HostTake(const PreparedTake& take) : take_(take) {
  for (std::size_t i = 0; i < storage_.size(); ++i) {
    storage_[i] = AlignedBytes(take.memory[i].before.size());
    address_[i] = storage_[i].span().data();
    copy_bytes(take.memory[i].before, storage_[i].span());
  }
}

void HostTake::check() const {
  for (std::size_t i = 0; i < address_.size(); ++i) expect_after(take_, i, address_[i]);
}

void run_on_cpu_rank(const Group& group, const TakeCase& c) {
  const PreparedTake take = prepare(c);
  HostTake host(take);
  host.call(group);
  host.check();
}

std::vector<TakeCase> take_cases() {
  std::vector<TakeCase> cases;
  std::mt19937 random(7);
  const auto pick = [&](auto n) { return random() % static_cast<std::uint32_t>(n); };
  for (std::uint32_t i = 0; i < 600; ++i) {
    std::vector<std::int32_t> rows(1 + pick(i % 10 == 0 ? kMaxTakenSlots : 6));
    for (std::int32_t& one : rows) one = static_cast<std::int32_t>(pick(4) == 0 ? 0 : pick(20));
    const auto kind = static_cast<Padding>(i % 5);
    const std::size_t shards = pick(2) == 0 ? 1 : 1 + pick(5);
    const bool aligned = pick(2) == 0;
    const auto gap = [&] { return pick(2) == 0 ? 0 : aligned ? 16 * pick(4) : pick(40); };
    const auto shift = [&] { return pick(2) == 0 ? 0 : aligned ? 16 * pick(4) : pick(16); };
    const std::size_t slot = pick(rows.size());
    std::vector<std::int32_t> given;
    for (std::size_t k = 0; kind == Padding::per_rank && k < rows.size(); ++k)
      given.push_back(rows[k] + static_cast<std::int32_t>(pick(7)));
    cases.push_back({.rows = rows,
                     .slot = slot,
                     .shards = shards,
                     .shard = pick(shards),
                     .sharding = shards == 1    ? Sharding::none
                                 : pick(2) == 0 ? Sharding::balanced
                                                : Sharding::ceil,
                     .split_slots = pick(2) == 0,
                     .kind = kind,
                     .slot_rows = kind == Padding::fixed ? 20u : 6u,
                     .given = given,
                     .row_bytes = aligned ? 16 * pick(30) : pick(300),
                     .input_gap = gap(),
                     .output_gap = gap(),
                     .input_shift = shift(),
                     .output_shift = shift(),
                     .spare_rows = pick(5),
                     .seed = i});
  }
  return cases;
}

std::vector<TakeMisfit> take_misfits() {
  return {
      {"Negative", "the count of rank 2 is -1, allowed is 0 or more", {4, 4, -1}},
      {"TooManyForTheOutput", "what is taken of slot 1 has 5 rows, and the output 4", {0, 5, 0}},
      {"TogetherTooMany",
       "all slots together have 2147483655 rows, and the tensor that holds them 12",
       {4, 4, 2147483647}},
      {"FixedSlotTooSmall", "the count of rank 0 is 5, and its slot has 4 rows", {5, 1, 1}, Padding::fixed},
      {"PadsTooMany", "all slots together have 15 rows, and the tensor that holds them 12", {1, 1, 5}, Padding::max},
      {"GivenSlotTooSmall",
       "the count of rank 2 is 3, and its slot has 2 rows",
       {1, 1, 3},
       Padding::per_rank,
       {4, 4, 2}}};
}

PreparedTake prepare(const TakeMisfit& misfit) {
  const std::vector<std::int32_t> fours{4, 4, 4};
  PreparedTake take = prepare(TakeCase{.rows = fours,
                                       .slot = 1,
                                       .kind = misfit.kind,
                                       .slot_rows = 4,
                                       .given = misfit.given.empty() ? misfit.given : fours,
                                       .row_bytes = 32,
                                       .input_gap = 16});
  put_numbers(take.memory[2], misfit.rows, misfit.given);
  for (TakeMemory& memory : take.memory) memory.after = memory.before;
  return take;
}

}  // namespace weft::test
