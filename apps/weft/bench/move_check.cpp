#include "bench/move_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/rank_device.hpp"
#include "common/pattern.hpp"
#include "oracle/top_k.hpp"
#include "weft/columns.hpp"
#include "weft/messages.hpp"
#include "weft/top_k.hpp"
#include "workloads/reference.hpp"

namespace weft::cli {
namespace {

// Combines the findings of all ranks into one verdict.
class Verdicts {
 public:
  Verdicts(const Ranks& ranks, const Point& point)
      : result_{.point = point, .verdict = Verdict::ok}, found_(static_cast<std::size_t>(ranks.local_size())) {}

  void add(Ranks::Seat& seat, const std::string& wrong) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    found_[index] = wrong;
    const auto flags = seat.gather({wrong.empty() ? 0.0 : 1.0});
    if (index != 0) return;
    for (std::size_t rank = 0; rank < flags.size(); ++rank)
      if (flags[rank].front() != 0) result_.wrong_ranks.push_back(static_cast<int>(rank));
  }
  Result take() {
    if (!result_.wrong_ranks.empty()) result_.verdict = Verdict::wrong;
    for (const std::string& wrong : found_)
      if (result_.detail.empty()) result_.detail = wrong;
    return std::move(result_);
  }

 private:
  Result result_;
  std::vector<std::string> found_;
};

// A rank's part of a check: its output, the call, and what the call must leave.
struct Part {
  std::size_t output = 0;  // elements
  std::function<void(Ranks::Seat& seat, RankDevice& device, void* input, void* output)> call;
  std::function<void(std::byte* wanted)> want;  // writes the right output
};

// Every rank sends `sent`.
Result check(Ranks& ranks, const ReferenceArgs& sent, const std::function<Part(const Ranks::Seat&)>& part_of) {
  const DataType type = sent.type;
  Verdicts verdicts(ranks, {.count = sent.count, .type = type, .op = sent.op});
  ranks.each([&](Ranks::Seat& seat) {
    const Part part = part_of(seat);
    const auto device = open_rank_device(ranks, seat);
    const std::size_t bytes = part.output * size_of(type);
    void* const input = device->allocate(sent.count * size_of(type));
    void* const output = device->allocate(bytes);
    device->produce(input, sent.count, type, sent.data, seat.rank(), 0);
    device->fill(output, 0xff, bytes);
    device->run(seat, [&] { part.call(seat, *device, input, output); });
    std::vector<std::byte> got(bytes), wanted(bytes);
    device->download(got.data(), output, bytes);
    part.want(wanted.data());
    verdicts.add(seat, compare({.count = part.output, .type = type}, wanted, got, true));
  });
  return verdicts.take();
}

// Elements [begin, begin + count) of what `rank` sends.
void sent_by(int rank, const ReferenceArgs& sent, std::size_t begin, std::size_t count, std::byte* to) {
  std::vector<std::byte> all((begin + count) * size_of(sent.type));
  fill(all.data(), begin, begin + count, sent.type, sent.data, rank, 0);
  std::ranges::copy(std::span(all).subspan(begin * size_of(sent.type)), to);
}

// Every rank sends every rank `words` words of its own.
Result check_all_to_all(Ranks& ranks, std::size_t words) {
  const auto size = static_cast<std::size_t>(ranks.world_size());
  const ReferenceArgs sent{.count = size * words, .type = DataType::i32, .data = Data::random};
  const std::size_t row = words * size_of(sent.type);
  return check(ranks, sent, [=](const Ranks::Seat& seat) {
    const std::size_t mine = static_cast<std::size_t>(seat.rank()) * words;
    return Part{.output = sent.count,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      all_to_all(caller.communicator(),
                                 {.input = input, .output = output, .row_bytes = row, .stream = device.stream()});
                    },
                .want =
                    [=](std::byte* wanted) {
                      for (std::size_t from = 0; from < size; ++from)
                        sent_by(static_cast<int>(from), sent, mine, words, wanted + from * row);
                    }};
  });
}

// A matrix whose columns the ranks share, without the last shard's last column.
struct ColumnsCheck {
  std::size_t rows, shard, gap;  // elements between the output's rows
  bool output_f32;               // of bf16, so every bit is known
};
Result check_columns(Ranks& ranks, const ColumnsCheck& of) {
  const auto size = static_cast<std::size_t>(ranks.world_size());
  const std::size_t columns = size * of.shard - 1, stride = columns + of.gap, element = of.output_f32 ? 2 : 1;
  const ReferenceArgs sent{.count = of.rows * of.shard, .type = DataType::bf16, .data = Data::random};
  return check(ranks, sent, [=](const Ranks::Seat&) {
    return Part{.output = of.rows * stride * element,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      all_gather_columns(caller.communicator(), {.input = input,
                                                                 .output = output,
                                                                 .rows = of.rows,
                                                                 .shard_columns = of.shard,
                                                                 .columns = columns,
                                                                 .output_stride = stride,
                                                                 .output_f32 = of.output_f32,
                                                                 .stream = device.stream()});
                    },
                .want =
                    [=](std::byte* wanted) {
                      std::fill_n(wanted, of.rows * stride * element * 2, std::byte{0xff});  // gaps stay
                      std::vector<std::byte> from(sent.count * 2);
                      for (std::size_t i = 0; i < size * sent.count; ++i) {
                        const std::size_t rank = i / sent.count, at = i % sent.count, row = at / of.shard;
                        if (at == 0) sent_by(static_cast<int>(rank), sent, 0, sent.count, from.data());
                        const std::size_t column = rank * of.shard + at % of.shard;
                        if (column >= columns) continue;
                        std::byte* const to = wanted + (row * stride + column) * element * 2;
                        std::fill_n(to, element * 2, std::byte{0});  // an f32 begins with 16 zeros, its lowest bits
                        std::copy_n(from.data() + at * 2, 2, to + (element - 1) * 2);
                      }
                    }};
  });
}

// Rank r gets r + 1 rows, without the last shard's last column.
Result check_group_columns(Ranks& ranks, std::size_t shard) {
  const auto size = static_cast<std::size_t>(ranks.world_size());
  const std::size_t columns = size * shard - 1, all_rows = size * (size + 1) / 2;
  const ReferenceArgs sent{.count = all_rows * shard, .type = DataType::bf16, .data = Data::random};
  return check(ranks, sent, [=](const Ranks::Seat& seat) {
    const auto own = static_cast<std::size_t>(seat.rank()), rows = own + 1, first = own * rows / 2;
    return Part{.output = rows * columns,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      std::vector<std::int32_t> counts(size);
                      for (std::size_t rank = 0; rank < size; ++rank)
                        counts[rank] = static_cast<std::int32_t>(rank) + 1;
                      all_to_all_columns(caller.communicator(), {.input = input,
                                                                 .output = output,
                                                                 .shard_columns = shard,
                                                                 .columns = columns,
                                                                 .counts = {.rows = counts.data(), .on_host = true},
                                                                 .input_rows = all_rows,
                                                                 .output_rows = rows,
                                                                 .stream = device.stream()});
                    },
                .want =
                    [=](std::byte* wanted) {
                      std::vector<std::byte> from(sent.count * 2);
                      for (std::size_t rank = 0; rank < size; ++rank) {
                        sent_by(static_cast<int>(rank), sent, 0, sent.count, from.data());
                        const std::size_t kept = std::min(shard, columns - rank * shard);
                        for (std::size_t row = 0; row < rows; ++row)
                          std::memcpy(wanted + (row * columns + rank * shard) * 2, &from[(first + row) * shard * 2],
                                      kept * 2);
                      }
                    }};
  });
}

// Every rank sends `words` words to the next one.
Result check_ring(Ranks& ranks, std::size_t words) {
  const int size = ranks.world_size();
  const ReferenceArgs sent{.count = words, .type = DataType::i32, .data = Data::random};
  const std::size_t bytes = words * size_of(sent.type);
  return check(ranks, sent, [=](const Ranks::Seat& seat) {
    const int next = (seat.rank() + 1) % size, before = (seat.rank() + size - 1) % size;
    return Part{.output = words,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      const Send to{.peer = next, .data = input, .bytes = bytes};
                      const Receive from{.peer = before, .data = output, .bytes = bytes};
                      send_receive(caller.communicator(),
                                   {.sends = {&to, 1}, .receives = {&from, 1}, .stream = device.stream()});
                    },
                .want = [=](std::byte* wanted) { sent_by(before, sent, 0, words, wanted); }};
  });
}

// The last rank gathers `words` words of each rank, and every rank gets them back.
Result check_gather_and_scatter(Ranks& ranks, std::size_t words) {
  const auto size = static_cast<std::size_t>(ranks.world_size());
  const ReferenceArgs sent{.count = words, .type = DataType::i32, .data = Data::random};
  const std::size_t bytes = words * size_of(sent.type);
  const int root = ranks.world_size() - 1;
  return check(ranks, sent, [=](const Ranks::Seat& seat) {
    const int rank = seat.rank();
    return Part{.output = words,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      void* const all = rank == root ? device.allocate(size * bytes) : nullptr;
                      gather(caller.communicator(),
                             {.input = input, .output = all, .bytes = bytes, .root = root, .stream = device.stream()});
                      scatter(
                          caller.communicator(),
                          {.input = all, .output = output, .bytes = bytes, .root = root, .stream = device.stream()});
                    },
                .want = [=](std::byte* wanted) { sent_by(rank, sent, 0, words, wanted); }};
  });
}

// `of_each`: elements of a rank's result.
Result check_reduce_scatter(Ranks& ranks, DataType type, ReduceOp op, std::size_t of_each) {
  const int size = ranks.world_size();
  const ReferenceArgs sent{
      .count = static_cast<std::size_t>(size) * of_each, .type = type, .op = op, .data = Data::random, .ranks = size};
  return check(ranks, sent, [=](const Ranks::Seat& seat) {
    const std::size_t mine = static_cast<std::size_t>(seat.rank()) * of_each;
    return Part{.output = of_each,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      reduce_scatter_tensor(caller.communicator(), {.input = input,
                                                                    .output = output,
                                                                    .width = of_each,
                                                                    .type = type,
                                                                    .op = op,
                                                                    .stream = device.stream()});
                    },
                .want =
                    [=](std::byte* wanted) {
                      std::vector<std::byte> all(sent.count * size_of(type));
                      reduce_reference(sent, mine, mine + of_each, all.data());
                      std::ranges::copy(std::span(all).subspan(mine * size_of(type), of_each * size_of(type)), wanted);
                    }};
  });
}

// To the last rank.
Result check_reduce(Ranks& ranks, DataType type, ReduceOp op, std::size_t count) {
  const int root = ranks.world_size() - 1;
  const ReferenceArgs sent{.count = count, .type = type, .op = op, .data = Data::random, .ranks = root + 1};
  return check(ranks, sent, [=](const Ranks::Seat& seat) {
    const bool is_root = seat.rank() == root;
    return Part{.output = is_root ? count : 0,
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      reduce(caller.communicator(), {.input = input,
                                                     .output = is_root ? output : nullptr,
                                                     .count = count,
                                                     .type = type,
                                                     .op = op,
                                                     .root = root,
                                                     .stream = device.stream()});
                    },
                .want =
                    [=](std::byte* wanted) {
                      if (is_root) reduce_reference(sent, 0, count, wanted);
                    }};
  });
}

// Candidates of a matrix whose columns the ranks share, without the last shard's last column.
Result check_top_k(Ranks& ranks, std::size_t rows, std::size_t shard, std::size_t k) {
  const auto size = static_cast<std::size_t>(ranks.world_size());
  const std::size_t columns = size * shard - 1;
  const ReferenceArgs sent{.count = rows * shard, .type = DataType::bf16, .data = Data::random};
  return check(ranks, sent, [=](const Ranks::Seat&) {
    return Part{.output = rows * k * sizeof(std::int32_t) / size_of(sent.type),
                .call =
                    [=](Ranks::Seat& caller, RankDevice& device, void* input, void* output) {
                      top_k_columns(caller.communicator(), {.input = input,
                                                            .indices = static_cast<std::int32_t*>(output),
                                                            .rows = rows,
                                                            .k = k,
                                                            .shard_columns = shard,
                                                            .columns = columns,
                                                            .stream = device.stream()});
                    },
                .want =
                    [=](std::byte* wanted) {
                      std::vector<std::byte> from(sent.count * 2), whole(rows * size * shard * 2);
                      for (std::size_t rank = 0; rank < size; ++rank) {
                        sent_by(static_cast<int>(rank), sent, 0, sent.count, from.data());
                        for (std::size_t row = 0; row < rows; ++row)
                          std::memcpy(&whole[(row * size + rank) * shard * 2], &from[row * shard * 2], shard * 2);
                      }
                      for (std::size_t row = 0; row < rows; ++row) {
                        const auto of_row = std::span(whole).subspan(row * size * shard * 2, columns * 2);
                        const auto found = oracle::largest_of(of_row, DataType::bf16, k);
                        for (std::size_t i = 0; i < k; ++i)
                          std::memcpy(wanted + (row * k + i) * 4, &found[i].column, 4);
                      }
                    }};
  });
}

}  // namespace

std::vector<MoveCheck> move_checks(int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  std::vector<MoveCheck> all;
  for (const std::size_t words : {std::size_t{1}, (std::size_t{16} << 10) / 4 + 1, (std::size_t{1} << 20) / 4}) {
    all.push_back({"all_to_all", size * words * 4, [=](Ranks& world) { return check_all_to_all(world, words); }});
    all.push_back({"send_receive", words * 4, [=](Ranks& world) { return check_ring(world, words); }});
    all.push_back(
        {"gather and scatter", size * words * 4, [=](Ranks& world) { return check_gather_and_scatter(world, words); }});
  }
  // Rows at any address, rows of whole 16 bytes, and elements that are changed.
  for (const ColumnsCheck& of : {ColumnsCheck{3, 40, 0, false}, {33, 4096, 1, false}, {3, 104, 1, true}})
    all.push_back({of.output_f32 ? "all_gather_columns to f32" : "all_gather_columns",
                   size * of.rows * of.shard * (of.output_f32 ? 4 : 2),
                   [=](Ranks& world) { return check_columns(world, of); }});
  for (const std::size_t shard : {std::size_t{41}, std::size_t{4096}})
    all.push_back({"all_to_all_columns", size * std::max(size, (size + 1) / 2) * shard * 2,
                   [=](Ranks& world) { return check_group_columns(world, shard); }});
  for (const std::size_t k : {std::size_t{1}, std::size_t{40}}) {
    constexpr std::size_t rows = 3, shard = 900;
    all.push_back({fmt::format("top_k_columns k {}", k), size * rows * shard * 2,
                   [=](Ranks& world) { return check_top_k(world, rows, shard, k); }});
  }
  for (const DataType type :
       {DataType::bf16, DataType::f16, DataType::f32, DataType::i32, DataType::i64, DataType::u8}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max, ReduceOp::min, ReduceOp::avg}) {
      const std::size_t count = 203;
      const std::string kind = fmt::format(" {} {}", name(op), name(type));
      all.push_back({"reduce_scatter" + kind, size * count * size_of(type),
                     [=](Ranks& world) { return check_reduce_scatter(world, type, op, count); }});
      all.push_back(
          {"reduce" + kind, count * size_of(type), [=](Ranks& world) { return check_reduce(world, type, op, count); }});
    }
  }
  return all;
}

Result check_barrier(Ranks& ranks) {
  constexpr std::chrono::milliseconds late{2};
  constexpr int most_turns = 8;
  Verdicts verdicts(ranks, {});
  std::vector<std::atomic<int>> begun(static_cast<std::size_t>(ranks.world_size()));  // rounds of this process's ranks
  std::vector<std::atomic<bool>> here(begun.size());
  ranks.each([&](Ranks::Seat& seat) {
    const auto device = open_rank_device(ranks, seat);
    const auto self = static_cast<std::size_t>(seat.rank());
    here[self] = true;
    seat.barrier();
    std::string wrong;
    for (int turn = 0; turn < std::min(most_turns, ranks.world_size()); ++turn) {
      if (turn == seat.rank()) std::this_thread::sleep_for(late);
      begun[self] = turn + 1;
      device->run(seat, [&] { barrier(seat.communicator(), {.stream = device->stream()}); });
      for (std::size_t rank = 0; rank < begun.size(); ++rank)
        if (wrong.empty() && here[rank] && begun[rank] <= turn)
          wrong = fmt::format("ended before rank {} had begun", rank);
    }
    verdicts.add(seat, wrong);
  });
  return verdicts.take();
}

}  // namespace weft::cli
