// The calls of moves, and moves on CPU ranks.
#include <algorithm>
#include <span>

#include "support/bytes.hpp"
#include "support/letters.hpp"
#include "support/moves.hpp"
#include "support/world.hpp"
#include "weft/crossings.hpp"
#include "weft/messages.hpp"

namespace weft::test {

namespace {

// Numbers on the host that are gone when the call has returned.
class OnHost {
 public:
  explicit OnHost(const Move& move) : numbers_(move.counts) {
    numbers_.insert(numbers_.end(), move.slots.begin(), move.slots.end());
  }
  ~OnHost() { std::ranges::fill(numbers_, -7); }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  const std::int32_t* numbers() const { return numbers_.data(); }

 private:
  std::vector<std::int32_t> numbers_;
};

}  // namespace

void issue(const Group& group, const RankMove& prepared, const std::function<std::byte*(const Memory&)>& address,
           Stream stream) {
  const Move& move = prepared.move;
  if (move.kind == Kind::messages) return issue_letters(group, prepared, address, stream);
  const auto output_gap = [&](std::size_t tensor) { return move.gap(move.output_gap, tensor); };
  const auto input_gap = [&](std::size_t tensor) {
    return move.gap(move.in_place ? move.output_gap : move.input_gap, tensor);
  };
  const bool is_root = group.rank() == move.root;
  const auto at = [&](std::size_t memory) { return address(prepared.memory[memory]) + prepared.memory[memory].begin; };
  const Place& mine = prepared.places[static_cast<std::size_t>(group.rank())];
  const Place& last = prepared.places.back();
  std::size_t group_rows = 0, group_slots = 0;
  for (int member = 0; member < move.group_ranks; ++member) {
    const int rank = group.rank() / move.group_ranks * move.group_ranks + member;
    group_rows += prepared.places[static_cast<std::size_t>(rank)].rows;
    group_slots += prepared.places[static_cast<std::size_t>(rank)].slot;
  }
  const auto own_row = [&](std::size_t tensor) { return mine.begin * (move.row_bytes(tensor) + output_gap(tensor)); };
  const bool gathers = move.kind == Kind::all_gather || move.kind == Kind::all_gather_v || move.kind == Kind::gather;
  const auto input = [&](std::size_t tensor) {
    return at(prepared.input(tensor)) + (move.in_place && gathers ? own_row(tensor) : 0);
  };
  const auto output = [&](std::size_t tensor) {
    return at(prepared.output(tensor)) + (move.in_place && lies_in_input(move.kind) ? own_row(tensor) : 0);
  };
  const bool on_host =
      move.counts_at == CountsAt::host || (move.counts_at == CountsAt::host_of_odd_ranks && group.rank() % 2 == 1);
  OnHost host(move);
  const auto* const numbers =
      on_host ? host.numbers()
              : reinterpret_cast<const std::int32_t*>(address(prepared.counts) + prepared.counts.begin);
  const Counts counts{.rows = move.counts.empty() ? nullptr : numbers,
                      .sharding = move.sharding,
                      .padding = move.padding,
                      .slot_rows = move.slot_rows,
                      .slots = move.slots.empty() ? nullptr : numbers + move.counts.size(),
                      .on_host = on_host};
  const auto fill_copy = [&](auto args) {
    args.input = input(0);
    args.output = output(0);
    args.rows = move.rows;
    args.row_bytes = move.row_bytes(0);
    args.input_stride = move.row_bytes(0) + input_gap(0);
    args.output_stride = move.row_bytes(0) + output_gap(0);
    args.stream = stream;
    args.tag = move.tag;
    args.launch = move.launch;
    return args;
  };
  switch (move.kind) {
    case Kind::all_gather:
      return all_gather_into_tensor(group, fill_copy(AllGatherArgs{}));
    case Kind::all_to_all:
      return all_to_all(group, fill_copy(AllToAllArgs{}));
    case Kind::broadcast: {
      BroadcastArgs args = fill_copy(BroadcastArgs{});
      args.root = move.root;
      return broadcast(group, args);
    }
    case Kind::reduce_scatter:
      return reduce_scatter_tensor(group,
                                   {.input = input(0),
                                    .output = output(0),
                                    .rows = move.rows,
                                    .width = move.widths[0],
                                    .input_stride = move.widths[0] + (move.in_place ? move.output_gap : move.input_gap),
                                    .output_stride = move.widths[0] + move.output_gap,
                                    .type = move.type,
                                    .op = move.op,
                                    .stream = stream,
                                    .tag = move.tag,
                                    .launch = move.launch});
    case Kind::all_gather_v: {
      std::vector<GatheredTensor> tensors;
      for (std::size_t tensor = 0; tensor < move.widths.size(); ++tensor) {
        tensors.push_back({.input = input(tensor),
                           .output = output(tensor),
                           .row_bytes = move.row_bytes(tensor),
                           .input_stride = move.row_bytes(tensor) + input_gap(tensor),
                           .output_stride = move.row_bytes(tensor) + output_gap(tensor)});
      }
      return all_gather_v(group, {.tensors = tensors,
                                  .counts = counts,
                                  .input_rows = (move.has_replicas() ? group_rows : mine.rows) + move.spare_rows,
                                  .output_rows = last.begin + last.slot + move.spare_rows,
                                  .stream = stream,
                                  .tag = move.tag,
                                  .launch = move.launch,
                                  .group_ranks = static_cast<std::size_t>(move.group_ranks)});
    }
    case Kind::reduce_scatter_v:
      return reduce_scatter_v(group,
                              {.input = input(0),
                               .output = output(0),
                               .width = move.widths[0],
                               .input_stride = move.widths[0] + (move.in_place ? move.output_gap : move.input_gap),
                               .output_stride = move.widths[0] + move.output_gap,
                               .type = move.type,
                               .op = move.op,
                               .counts = counts,
                               .input_rows = last.begin + last.slot + move.spare_rows,
                               .output_rows = mine.slot + move.spare_rows,
                               .stream = stream,
                               .tag = move.tag,
                               .launch = move.launch});
    case Kind::reduce:
      return reduce(group, {.input = input(0),
                            .output = is_root ? output(0) : nullptr,
                            .count = move.rows * move.widths[0],
                            .type = move.type,
                            .op = move.op,
                            .root = move.root,
                            .stream = stream,
                            .tag = move.tag,
                            .launch = move.launch});
    case Kind::gather:
      return gather(group, {.input = input(0),
                            .output = is_root ? output(0) : nullptr,
                            .bytes = move.rows * move.row_bytes(0),
                            .root = move.root,
                            .stream = stream,
                            .tag = move.tag,
                            .launch = move.launch});
    case Kind::scatter:
      return scatter(group, {.input = is_root ? input(0) : nullptr,
                             .output = output(0),
                             .bytes = move.rows * move.row_bytes(0),
                             .root = move.root,
                             .stream = stream,
                             .tag = move.tag,
                             .launch = move.launch});
    case Kind::gather_sums:
    case Kind::scatter_sums: {
      const std::size_t whole = last.begin + last.slot;
      const bool to_all = move.kind == Kind::gather_sums;
      return (to_all ? gather_sums : scatter_sums)(group,
                                                   {.input = input(0),
                                                    .output = output(0),
                                                    .width = move.widths[0],
                                                    .input_stride = move.widths[0] + move.input_gap,
                                                    .output_stride = move.widths[0] + move.output_gap,
                                                    .type = move.type,
                                                    .group_ranks = static_cast<std::size_t>(move.group_ranks),
                                                    .counts = counts,
                                                    .input_rows = (to_all ? group_rows : whole) + move.spare_rows,
                                                    .output_rows = (to_all ? whole : group_slots) + move.spare_rows,
                                                    .stream = stream,
                                                    .tag = move.tag,
                                                    .launch = move.launch});
    }
    case Kind::messages:
      return;
  }
}

std::size_t output_bytes(const RankMove& move) {
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < move.memory.size(); ++i) bytes += is_output(move, i) ? move.memory[i].before.size() : 0;
  return bytes;
}

HostMove::HostMove(const RankMove& largest, std::byte* outputs) : largest_(largest) {
  for (std::size_t i = 0; i <= largest.memory.size(); ++i) {
    const bool counts = i == largest.memory.size();
    const std::size_t bytes = (counts ? largest.counts : largest.memory[i]).before.size();
    if (!counts && outputs != nullptr && is_output(largest, i)) {
      storage_.emplace_back(outputs, bytes);
      outputs += bytes;
      continue;
    }
    storage_.push_back(own_.emplace_back(bytes).span());
  }
  fill();
}

std::span<std::byte> HostMove::storage_of(const Memory& memory) {
  if (&memory == &largest_.counts) return storage(largest_.memory.size());
  return storage(static_cast<std::size_t>(&memory - largest_.memory.data()));
}

void HostMove::fill(const RankMove& move) {
  const auto fill_one = [&](std::size_t index, const Memory& memory) {
    copy_bytes(memory.before, storage(index));
    fill_bytes(storage(index).subspan(memory.before.size()), kNanCanary);
  };
  for (std::size_t i = 0; i < move.memory.size(); ++i) fill_one(i, move.memory[i]);
  fill_one(move.memory.size(), move.counts);
}

void HostMove::call(const Group& group) {
  issue(
      group, largest_, [&](const Memory& memory) { return storage_of(memory).data(); }, nullptr);
}

void HostMove::check(const RankMove& move) {
  for (std::size_t i = 0; i < move.memory.size(); ++i) expect_after(move, move.memory[i], storage(i));
  expect_after(move, move.counts, storage(move.memory.size()));
}

void run_on_cpu_rank(const Group& group, const Move& move, std::byte* outputs) {
  const RankMove prepared = prepare(move, group.size(), group.rank());
  HostMove host(prepared, outputs);
  host.call(group);
  host.check();
}

void expect_right(int ranks, const Config& config, const std::vector<Move>& moves) {
  expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int) {
    for (const Move& move : moves) run_on_cpu_rank(communicator, move);
  }));
}

}  // namespace weft::test
