#include "bench/rank_bench.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "common/sizes.hpp"
#include "peers/gloo_peer.hpp"

namespace weft::cli {
namespace {

// Counts every rank's buffers and a host copy of its output. On GPUs only the copy is in the host's memory.
void check_memory(const Ranks& ranks, std::size_t max_bytes, std::size_t buffers_of_rank) {
  const auto local = static_cast<std::size_t>(ranks.local_size());
  const std::size_t buffers = ranks.device() == Device::cuda ? local : (buffers_of_rank + 1) * local;
  const std::size_t memory =
      static_cast<std::size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  if (max_bytes > memory / buffers)
    throw Error(Errc::invalid_argument,
                fmt::format("a message of {}: must be at most {} here, since {} such buffers share {} of memory",
                            format_bytes(max_bytes), format_bytes(memory / buffers), buffers, format_bytes(memory)));
}

}  // namespace

RankBench::RankBench(Ranks& ranks, const BenchArgs& args, std::size_t buffers)
    : ranks_(ranks), args_(args), opened_(static_cast<std::size_t>(ranks.local_size())) {
  check_memory(ranks, args.max_bytes, buffers);
  const bool gpu = ranks.device() == Device::cuda;
  std::shared_ptr<GlooPeer> gloo;
  if (!args.peers || args.open_peer) {
    // nothing to find
  } else if (gpu && ranks.local_size() > usable_gpus()) {
    notes_.push_back("NCCL: several ranks share a GPU here, which NCCL does not support");
  } else if (!gpu && ranks.local_size() != ranks.world_size()) {
    notes_.push_back("Gloo: only measured when the ranks are threads of one process");
  } else if (!gpu && ranks.world_size() > 1) {
    gloo = open_gloo(ranks.world_size());
    if (!gloo) notes_.push_back("Gloo: not installed, or weft-gloo-peer.so is not beside this program");
  }
  const bool nccl = args.peers && !args.open_peer && gpu && notes_.empty() && ranks.world_size() > 1;
  ranks_.each([&](Ranks::Seat& seat) { open(seat, nccl, gloo); });
}

std::vector<std::string> RankBench::notes() const {
  std::vector<std::string> all = notes_;
  if (const auto& peer = opened_.front().peer; peer && !peer->problem().empty()) all.push_back(peer->problem());
  return all;
}

void RankBench::split_peers(const std::function<int(const Ranks::Seat&)>& color_of) {
  ranks_.each([&](Ranks::Seat& seat) {
    Rank& mine = rank(seat);
    mine.device->use();
    if (mine.peer) mine.peer->split(seat, color_of(seat));
  });
}

RankBench::~RankBench() {
  try {
    ranks_.each([&](Ranks::Seat& seat) {
      Rank& mine = rank(seat);
      mine.device->use();
      mine.peer.reset();
      mine.device.reset();
    });
  } catch (const std::exception&) {
    // Another rank failed before; the process is about to end with its message.
  }
}

void RankBench::open(Ranks::Seat& seat, [[maybe_unused]] bool nccl, const std::shared_ptr<GlooPeer>& gloo) {
  Rank& mine = rank(seat);
  mine.device = open_rank_device(ranks_, seat);
  mine.input = mine.device->allocate(args_.max_bytes + kInputRoom);
  mine.output = mine.device->allocate(args_.max_bytes);
  if (args_.peers && args_.open_peer) mine.peer = args_.open_peer(seat, args_.max_bytes + kInputRoom);
  if (gloo) mine.peer = open_gloo_rank(gloo, seat.rank());
#if WEFT_WITH_CUDA
  if (nccl) mine.peer = open_nccl_peer(seat, args_.max_bytes + kInputRoom);
#endif
}

RankBench::Buffers RankBench::buffers(const Ranks::Seat& seat, const Point& point) {
  const Rank& mine = rank(seat);
  const bool own = !is_peer(point.contender) || mine.peer->input(point.contender) == nullptr;
  void* const input = own ? mine.input : mine.peer->input(point.contender);
  return {static_cast<std::byte*>(input) + mine.input_at, own ? mine.output : mine.peer->output(point.contender)};
}

std::vector<Contender> RankBench::peers(Operation operation) const {
  const auto& peer = opened_.front().peer;
  return peer ? peer->contenders(operation) : std::vector<Contender>{};
}

std::vector<Contender> RankBench::exchangers() const {
  const auto& peer = opened_.front().peer;
  return peer ? peer->exchangers() : std::vector<Contender>{};
}

RankBench::Taken RankBench::take(Ranks::Seat& seat, const Point& point, int samples) {
  Taken taken;
  Rank& mine = rank(seat);
  mine.input_at = 0;
  const Buffers memory = buffers(seat, point);
  const auto produce = [&](int step, std::size_t more) {
    mine.device->produce(memory.input, input_elements(point) + more, point.type, args_.data, pattern_rank(seat), step);
  };
  const std::size_t bytes = output_elements(point) * size_of(point.type);
  produce(kLastStep, kInputRoom / size_of(point.type));
  prepare(seat, point);
  mine.device->run(seat, [&] {
    enqueue(seat, point);
    if (is_weft(point.contender)) taken.chosen = chosen_algorithm(seat.communicator());
    for (int i = 0; i < 2; ++i) enqueue(seat, point);
  });
  seat.barrier();
  Timing timing{.method = point.method,
                .samples = samples,
                .operation = {},
                .produce = [&](int step) { produce(step, 0); },
                .poison = [&] { mine.device->fill(memory.output, 0xff, bytes); },
                .waits_for_nobody = is_bound(point.contender)};
  if (point.method == Method::producer) taken.baseline = mine.device->time(seat, timing);
  timing.operation = [&](int input) {
    mine.input_at = static_cast<std::size_t>(input) * kInputStep;
    enqueue(seat, point);
  };
  taken.samples = mine.device->time(seat, timing);
  mine.host.resize(bytes);
  mine.device->download(mine.host.data(), memory.output, bytes);
  return taken;
}

Result RankBench::run(const Point& point, int samples) {
  begin(point);
  Result result{.point = point};
  std::vector<std::string> wrong(opened_.size());
  std::vector<std::vector<double>> flags;
  ranks_.each([&](Ranks::Seat& seat) {
    const auto index = static_cast<std::size_t>(seat.local_index());
    Taken taken;
    try {
      taken = take(seat, point, samples);
    } catch (const Error& error) {
      if (!is_rejection(error)) throw;
      wrong[index] = error.what();
      return;
    }
    wrong[index] = verify(seat, point);
    auto all_samples = seat.gather(taken.samples);
    auto all_flags = seat.gather({wrong[index].empty() ? 0.0 : 1.0});
    auto all_baselines = taken.baseline.empty() ? std::vector<std::vector<double>>{} : seat.gather(taken.baseline);
    if (index != 0) return;
    result.chosen = taken.chosen;
    result.samples_us = std::move(all_samples);
    result.baseline_us = std::move(all_baselines);
    flags = std::move(all_flags);
  });
  for (const auto& detail : wrong)
    if (result.detail.empty()) result.detail = detail;
  if (result.samples_us.empty()) return result;  // rejected

  result.verdict = Verdict::ok;
  for (std::size_t rank = 0; rank < flags.size(); ++rank)
    if (flags[rank].front() != 0) result.wrong_ranks.push_back(static_cast<int>(rank));
  if (!result.wrong_ranks.empty()) result.verdict = Verdict::wrong;
  result.us = operation_us(result);
  return result;
}

}  // namespace weft::cli
