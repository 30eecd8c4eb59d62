// An exchange of many ranks on a machine with clocks: their windows, tensors and launches. Few tokens stand for many,
// and short rows for long ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ops/moe/sim_exchange.hpp"
#include "ops/moe/sim_timed_kernels.hpp"
#include "sim/setup.hpp"
#include "sim/timed_machine.hpp"

namespace weft::sim {

struct TimedTraffic {
  unsigned ranks;
  std::uint32_t experts, top_k;
  std::uint32_t tokens;            // of each rank in the simulator …
  double tokens_each;              // … each of which stands for so many
  double row_bytes, result_bytes;  // of a token's row on the way to its experts, and on the way back
  bool ring;                       // the path of rows; else slots
};

class TimedExchange {
 public:
  // `routing`: of all ranks' tokens.
  TimedExchange(const TimedTraffic& traffic, const Routing& routing, unsigned streams_of_rank);

  TimedMachine& machine() { return *machine_; }
  unsigned ranks() const { return traffic_.ranks; }

  // Launches of a rank. A combine is of this dispatch.
  void dispatch(unsigned rank, unsigned stream, double processors, detail::Phases phases, const detail::Rounds& rounds);
  void combine(unsigned rank, unsigned stream, double processors, detail::Phases phases, const detail::Rounds& rounds);
  // Experts make results of their rows, in the time given.
  void compute(unsigned rank, unsigned stream, double processors, detail::ExpertRange experts, double ns);

  // Makes all launches. Throws std::logic_error if a call fails.
  void run();
  // Outputs of the combine.
  const std::vector<std::uint16_t>& output(unsigned rank) const { return tensors_[rank].output; }

 private:
  struct Tensors {
    std::vector<std::uint16_t> input, results, output;  // bf16
    std::vector<std::int32_t> ids, counts, source_tokens, sources;
    std::vector<float> weights, scales;
    std::vector<std::byte> rows;
    detail::RoutingHeader header = {};
    std::vector<std::uint64_t> tables;
    detail::LocalState local[2] = {};
    detail::Channel channel[2] = {};
    detail::Call call[2] = {};
    detail::FaultRecord record[detail::kFaultKinds] = {};
    std::uint32_t claim[detail::kFaultKinds] = {};
    std::uint32_t abort = 0;
  };
  void say_what_stands_for_what();
  void make_channel(unsigned group, unsigned rank);
  void fill(unsigned rank, const std::vector<std::int64_t>& ids);
  detail::ExchangeView view(unsigned rank);
  void launch(unsigned rank, unsigned stream, unsigned group, double processors, TimedKernel kernel);

  TimedTraffic traffic_;
  ExchangePlan plan_;
  std::unique_ptr<TimedMachine> machine_;
  std::vector<Tensors> tensors_;  // by rank
};

}  // namespace weft::sim
