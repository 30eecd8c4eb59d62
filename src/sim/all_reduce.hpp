// Collective calls as a program for the machine: user tensors, the calls, and the expected outputs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "sim/machine.hpp"
#include "sim/run.hpp"
#include "sim/world.hpp"

namespace weft::detail {
struct ExchangeView;
struct NormWork;
}  // namespace weft::detail

namespace weft::sim {

// Bits of one element: different for every call, rank and place, so that nothing stale goes unnoticed.
std::uint64_t element_bits(Payload payload, DataType type, unsigned call, unsigned rank, std::uint64_t i);
std::uint64_t reduced(DataType type, ReduceOp op, const std::vector<std::uint64_t>& terms);

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
    std::vector<std::uint32_t> initial, expected;  // input then output; in place: one
    std::vector<std::uint32_t> memory;             // of the first call that uses it; replays share it
    std::vector<std::uint32_t> result;             // the contents that a replay of the same recording found there
    unsigned user;                                 // the last call that has begun to use `memory`
    Kernel kernel;
    std::vector<Kernel> later;  // a send: of the call's later launches, by turn
    std::size_t output_offset;  // bytes
    // Outputs in symmetric memory: a reader behind the call copies them into `memory`.
    struct Stretch {
      std::size_t from, to, bytes;
    };
    std::vector<Stretch> symmetric;
    // A call in rounds: what the output has behind each round of a dispatch, or what the experts have made before each
    // round of a combine.
    struct Piece {
      std::size_t at;
      std::vector<std::byte> bytes;
    };
    std::vector<std::vector<Piece>> rounds;
  };
  void fill(unsigned call, unsigned rank);
  // A call's kernel, tensors and expected outputs are defined in the operations' folders.
  void fill_all_reduce(unsigned call, unsigned rank);  // ops/all_reduce/sim_all_reduce.cpp
  // Fresh memory for a call; a replay gets its recording's memory.
  std::vector<std::uint32_t>& make_tensors(unsigned call, unsigned rank, std::size_t bytes);
  void fill_move(unsigned call, unsigned rank);      // ops/moves/sim_moves.cpp
  void fill_messages(unsigned call, unsigned rank);  // ops/messages/sim_messages.cpp
  // ops/norm/sim_norms.cpp
  void fill_norm(unsigned call, unsigned rank);
  Kernel kernel_of_norm(const CallSetup& spec, const detail::NormWork& work, std::uint32_t size, unsigned blocks) const;
  void fill_counts(unsigned call, unsigned rank);           // ops/moves/sim_counts.cpp
  void fill_columns(unsigned call, unsigned rank);          // ops/columns/sim_columns.cpp
  void fill_crossing(unsigned call, unsigned rank);         // ops/crossings/sim_crossings.cpp
  void fill_normed_crossing(unsigned call, unsigned rank);  // ops/normed_crossings/sim_normed_crossings.cpp
  void fill_top_k(unsigned call, unsigned rank);            // ops/top_k/sim_top_k.cpp
  void fill_trial(unsigned call, unsigned rank);            // sim/trial.cpp
  // ops/moe/sim_moe.cpp
  struct Arrival {
    unsigned rank, token;  // the token's rank and number
    float weight;
  };
  std::optional<std::uint32_t> replica_of(std::int64_t id, unsigned rank, std::uint32_t token) const;
  std::vector<std::vector<Arrival>> arrivals(unsigned dispatch) const;  // by expert, in order
  std::vector<std::size_t> beginnings(const std::vector<std::vector<Arrival>>& by_expert) const;
  std::optional<std::size_t> row_of(const std::vector<std::vector<Arrival>>& by_expert, std::uint32_t expert,
                                    std::size_t place, std::size_t beginning) const;
  // The number of rows that a source has for a rank.
  std::int32_t rows_for(const std::vector<std::vector<Arrival>>& by_expert, unsigned source, unsigned rank) const;
  void fill_dispatch(unsigned call, unsigned rank);
  void fill_combine(unsigned call, unsigned rank);
  // ops/moe/sim_rounds.cpp
  void add_to_round(unsigned call, unsigned rank, std::uint32_t local, Tensors::Piece piece);
  static void hide_rounds_behind(const Tensors& t, std::size_t current, std::vector<std::uint32_t>& words);
  unsigned turn_of(const CallSetup& spec) const;
  void begin_round(unsigned call, unsigned rank);
  void end_round(unsigned call, unsigned rank);
  void reset_tables();
  // The call whose routing a dispatch has: itself, or the one that it takes it from.
  unsigned routing_of(unsigned dispatch) const {
    const int again = setup_.calls[dispatch].again;
    return again >= 0 ? static_cast<unsigned>(again) : dispatch;
  }
  detail::ExchangeView exchange_view(unsigned dispatch, unsigned rank);
  bool takes_ring(const CallSetup& dispatch) const;
  std::uint32_t host_epoch(unsigned call) const;
  void note_parts();
  void begin_call(unsigned call, unsigned rank, unsigned thread);
  void read_symmetric(unsigned rank, std::optional<unsigned> thread);
  std::uint32_t epoch_of(unsigned call) const;  // ops/moe/sim_moe.cpp
  void end_call(unsigned call, unsigned rank);
  void look_for_record(unsigned call, unsigned rank);
  void wait_for_overlap(unsigned call, unsigned rank);
  void run_host(unsigned rank);
  void run_act(Act act, unsigned call, unsigned rank);
  void meet(unsigned rank);
  std::string wrong_result(unsigned call, unsigned rank);
  unsigned failed_call(unsigned rank, const detail::FaultRecord& record) const;
  bool may_say(Errc code) const;
  void count_what_is_needed();
  bool had_sent_all_for(unsigned call) const;
  bool repeats_its_reporter(unsigned rank, const detail::FaultRecord& record);
  std::string check_faults();
  std::string check_waits() const;
  std::string written_without_room(unsigned call, unsigned rank);
  std::string check_unordered();
  // The call with another call's arguments: itself, or its recording.
  unsigned recorded(unsigned call) const {
    return setup_.calls[call].replays >= 0 ? static_cast<unsigned>(setup_.calls[call].replays) : call;
  }
  Tensors& tensors(unsigned call, unsigned rank) { return tensors_[call * setup_.ranks + rank]; }

  Setup setup_;
  World world_;
  std::unique_ptr<Machine> machine_;
  std::vector<Tensors> tensors_;
  std::vector<unsigned> stream_of_;  // by thread
  // A rank's part of a call: what all executions have in common.
  struct Part {
    detail::Call call;
    Grid grid;
    unsigned threads;  // of all blocks
    std::uint32_t host_epoch;
    bool awaited;  // by a call of another stream
  };
  std::vector<Part> parts_;  // by call and rank
  // Routing tables of an exchange, by handle slot and rank.
  struct RoutingMemory;
  std::shared_ptr<RoutingMemory> tables_;
  // By the end of each call: how many stores the rank that stops in an execution makes to its peers' memory if nothing
  // stops it.
  static constexpr std::uint64_t kUnknown = ~std::uint64_t{0};
  std::vector<std::uint64_t> needed_;
  // of one execution
  std::string host_saw_;                      // the fault that the host saw
  std::vector<unsigned> begun_;               // calls, by stream
  std::vector<int> unread_;                   // by rank: the call with unread outputs in symmetric memory; −1
  std::vector<unsigned> threads_ended_;       // by call and rank
  std::vector<std::uint64_t> idled_;          // by rank: Machine::idled() when a thread last left a call
  std::vector<std::uint32_t> meetings_;       // by rank
  std::vector<std::uint64_t> stores_before_;  // to the window of each rank, when it went away
};

}  // namespace weft::sim
