// weft bench host: the host time of a call, and the time to launch (GPU) or run (CPU) its kernels alone.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <variant>
#include <vector>

#include "bench/bench_options.hpp"
#include "bench/every_operation.hpp"
#include "bench/rank_device.hpp"
#include "bench/report.hpp"
#include "comm/capture.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/table.hpp"
#include "common/values.hpp"

namespace weft::cli {
namespace {

constexpr int kCallsOfABatch = 32;  // few enough that none waits for room in a GPU's queue

// Nanoseconds of a call or of a part of it: the median of the batches, and their 10th and 90th percentiles.
struct Nanoseconds {
  double median = 0, low = 0, high = 0;
};
struct HostTimes {
  std::string operation;
  Nanoseconds call;    // from entry to return
  Nanoseconds bare;    // its kernels alone: launched on GPUs, run on CPU ranks
  Nanoseconds beyond;  // call − bare
};

class HostBench {
 public:
  std::vector<std::string> arguments;
  Device device = Device::automatic;
  int samples = 200;
  std::string json;

  int run();

 private:
  HostTimes measure(const Communicator& communicator, RankDevice& rank, const SmallCall& call) const;
};

double nanoseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - begin).count();
}

Nanoseconds summary(std::vector<double> samples) {
  std::ranges::sort(samples);
  const auto at = [&](std::size_t tenths) { return samples[(samples.size() - 1) * tenths / 10]; };
  return {.median = at(5), .low = at(1), .high = at(9)};
}

// The kernels of a call, with the arguments that the call gives them.
std::vector<detail::KernelCall> kernels_of(const Communicator& communicator, const SmallCall& call) {
  detail::Capture capture(communicator.world().state().communicator());
  call.make(0);
  const detail::RecordedCalls recorded = capture.take();
  std::vector<detail::KernelCall> kernels;
  for (const detail::RecordedStep& step : recorded.steps)
    kernels.push_back(std::get<detail::KernelCall>(step.what));  // no small call has functions of its own
  return kernels;
}

void run_bare(detail::Fabric& fabric, const detail::KernelCall& kernel) {
#if WEFT_WITH_CUDA
  if (fabric.device() == Device::cuda) return detail::launch_on_gpu(kernel);
#endif
  static_cast<void>(fabric.run(kernel));
}

HostTimes HostBench::measure(const Communicator& communicator, RankDevice& rank, const SmallCall& call) const {
  detail::Fabric& fabric = communicator.world().state().communicator().fabric();
  const std::vector<detail::KernelCall> kernels = kernels_of(communicator, call);
  std::uint32_t word = 0;
  void* const scratch = rank.allocate(sizeof(word));
  std::vector<double> called, bare, beyond;
  for (int sample = -1; sample < samples; ++sample) {  // the first warms up
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCallsOfABatch; ++i) call.make(0);
    const double whole = nanoseconds_since(begin) / kCallsOfABatch;
    rank.download(&word, scratch, sizeof(word));  // waits for the stream
    begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCallsOfABatch; ++i) {
      for (const detail::KernelCall& kernel : kernels) run_bare(fabric, kernel);
    }
    const double part = nanoseconds_since(begin) / kCallsOfABatch;
    rank.download(&word, scratch, sizeof(word));
    if (sample < 0) continue;
    called.push_back(whole);
    bare.push_back(part);
    beyond.push_back(whole - part);
  }
  communicator.check();
  return {.operation = call.name, .call = summary(called), .bare = summary(bare), .beyond = summary(beyond)};
}

std::string with_spread(const Nanoseconds& time) {
  return fmt::format("{:.0f} ({:.0f}…{:.0f})", time.median, time.low, time.high);
}

nlohmann::json spread_of(const Nanoseconds& time) {
  return {{"median", time.median}, {"p10", time.low}, {"p90", time.high}};
}

nlohmann::json points_of(const std::vector<HostTimes>& all, int samples) {
  nlohmann::json points = nlohmann::json::array();
  for (const HostTimes& times : all) {
    points.push_back({{"operation", times.operation},
                      {"call_ns", spread_of(times.call)},
                      {"bare_ns", spread_of(times.bare)},
                      {"beyond_ns", spread_of(times.beyond)},
                      {"samples", samples}});
  }
  return points;
}

int HostBench::run() {
  check_outputs({{"--json", json}});
  Ranks ranks({.world_size = 1, .device = device});
  std::vector<HostTimes> all;
  ranks.each([&](Ranks::Seat& seat) {
    const auto rank = open_rank_device(ranks, seat);
    rank->use();
    const EveryOperation operations(seat.communicator(), *rank);
    for (const SmallCall& call : operations.calls()) {
      call.make(0);
      all.push_back(measure(seat.communicator(), *rank, call));
    }
  });
  const bool gpu = ranks.device() == Device::cuda;
  if (json != "-") {
    Table table({"operation", "call", gpu ? "launch" : "kernel", "beyond it"});
    for (const HostTimes& times : all)
      table.add({times.operation, with_spread(times.call), with_spread(times.bare), with_spread(times.beyond)});
    fmt::print("Nanoseconds of one call on the host, one rank, 2 rows of 128 bytes\n{}\n\n{}\n", headline(ranks),
               table.text());
    fmt::print("Median of {} batches of {} calls (p10…p90). call: from entry to return. {}\n", samples, kCallsOfABatch,
               gpu ? "launch: cudaLaunchKernelExC\nof the same kernels with the same attributes and arguments."
                   : "kernel: the same kernels\nrun without the call around them; the rest of the call's time is spent "
                     "before and behind the first store.");
  }
  if (!json.empty()) {
    const RunInfo info{.command = "bench host",
                       .arguments = arguments,
                       .device = std::string(name(ranks.device())),
                       .world_size = 1,
                       .fabric = ranks.first().fabric(),
                       .data = "zeros",
                       .crowd = {},
                       .notes = {}};
    write_text(json, report(info, describe_machine(), points_of(all, samples)).dump(2) + "\n");
  }
  return 0;
}

}  // namespace

Command add_bench_host(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<HostBench>();
  bench->arguments = arguments;
  add_choice(app, "--device", bench->device, {Device::automatic, Device::cpu, Device::cuda}, "Device of the rank");
  app.add_option("--samples", bench->samples, "Batches of each operation")
      ->check(whole_number(1, 100'000))
      ->capture_default_str();
  app.add_option("--json", bench->json, "Write the results to a file; - is stdout")->check(not_empty());
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
