#include "bench/move_check.hpp"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "bench/rank_device.hpp"
#include "common/pattern.hpp"
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

}  // namespace

Result check_all_to_all(Ranks& ranks, std::size_t words) {
  const auto size = static_cast<std::size_t>(ranks.world_size());
  const ReferenceArgs sent{.count = size * words, .type = DataType::i32, .data = Data::random};
  Verdicts verdicts(ranks, {.count = sent.count, .type = sent.type});
  ranks.each([&](Ranks::Seat& seat) {
    const auto device = open_rank_device(ranks, seat);
    const std::size_t row = words * size_of(sent.type), bytes = size * row;
    void* const input = device->allocate(bytes);
    void* const output = device->allocate(bytes);
    device->produce(input, sent.count, sent.type, sent.data, seat.rank(), 0);
    device->fill(output, 0xff, bytes);
    device->run(seat, [&] {
      all_to_all(seat.communicator(), {.input = input, .output = output, .row_bytes = row, .stream = device->stream()});
    });
    std::vector<std::byte> got(bytes), theirs(bytes);
    device->download(got.data(), output, bytes);
    std::string wrong;
    const std::size_t mine = static_cast<std::size_t>(seat.rank()) * words;
    for (std::size_t from = 0; from < size && wrong.empty(); ++from) {
      fill(theirs.data(), mine, mine + words, sent.type, sent.data, static_cast<int>(from), 0);
      wrong = compare({.count = words, .type = sent.type}, std::span(theirs).subspan(mine * size_of(sent.type), row),
                      std::span(got).subspan(from * row, row), true);
      if (!wrong.empty()) wrong = fmt::format("from rank {}: {}", from, wrong);
    }
    verdicts.add(seat, wrong);
  });
  return verdicts.take();
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
