// All-reduce calls as a program for the machine: user tensors, the calls, and what must come out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/kernels.hpp"
#include "sim/machine.hpp"
#include "sim/world.hpp"

namespace weft::sim {

class AllReduceProgram final : public Program {
 public:
  explicit AllReduceProgram(const Setup& setup);

  const Setup& setup() const { return setup_; }
  Machine& machine() { return *machine_; }
  const World& world() const { return world_; }

  // One execution, from the initial state.
  Failure run(Scheduler& scheduler, const std::optional<Stop>& stop = {});

  void run(unsigned thread, unsigned launch) override;
  std::string check() override;

 private:
  // One rank's tensors of one call, with a guard element behind them.
  struct Tensors {
    std::vector<std::uint32_t> initial, memory, expected;  // input then output; in place: one
    detail::AllReduceWork work;
    std::size_t output_offset;  // bytes
  };
  void fill(unsigned call, unsigned rank);
  void run_host(unsigned rank);
  std::string wrong_result(unsigned call, unsigned rank);
  std::string check_faults();
  Tensors& tensors(unsigned call, unsigned rank) { return tensors_[call * setup_.ranks + rank]; }

  Setup setup_;
  World world_;
  std::unique_ptr<Machine> machine_;
  std::vector<AllReduceKernel> kernels_;  // by group
  std::vector<Tensors> tensors_;
  std::vector<unsigned> stream_of_;  // by thread
  std::string host_saw_;             // what was wrong with a record when the host read it
};

}  // namespace weft::sim
