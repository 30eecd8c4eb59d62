// GPU ranks record gathers and scatters and make them again (support/move_recordings.hpp).
#pragma once

#include <utility>

#include "gpu/support/gpu_move.hpp"
#include "gpu/support/graph.hpp"
#include "support/move_recordings.hpp"

namespace weft::test {

class GpuSide {
 public:
  using Moved = GpuMove;

  GpuSide(const GpuWorld& world, GpuRank& gpu, Communicator& communicator, std::byte* outputs = nullptr)
      : world_(world), gpu_(gpu), communicator_(communicator), outputs_(outputs) {}
  Communicator& communicator() const { return communicator_; }
  GpuMove moved(const RankMove& largest) const { return GpuMove(gpu_, largest, outputs_); }
  template <class Body>
  Graph record(Body&& body) const {
    return Graph(gpu_, std::forward<Body>(body));
  }
  void replay(const Graph& graph) const { graph.launch(gpu_.stream()); }
  // In the memory that there is: a rank's memory is taken once.
  template <class Prepared, class Used>
  void run(const Prepared& now, Used& used) const {
    used.fill(now);
    used.call(communicator_);
    used.check(now);
  }
  // In all of the rank's memory.
  void make(const Group& group, Move move) const {
    if (move.launch.blocks == 0) move.launch = launch(move.seed);
    run_on_gpu_rank(group, gpu_, move, outputs_);
  }
  void make(const Group& group, Prepared prepared) const {
    prepared.call.launch = world_.launch();
    run_on_gpu_rank(group, gpu_, prepared, group.rank());
  }
  Launch launch(std::uint32_t seed) const { return world_.launch(seed); }
  void check() const { communicator_.check(); }

 private:
  const GpuWorld& world_;
  GpuRank& gpu_;
  Communicator& communicator_;
  std::byte* outputs_;
};

}  // namespace weft::test
