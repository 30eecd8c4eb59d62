// The shared expert of a layer in `weft bench moe-layer`: two GEMMs and an activation of all tokens of a rank, beside
// the routed experts.
//
// It is a layer of one expert, on a communicator that has this rank alone. Its dispatch casts the rows once, in front
// of all that is timed: engines give dispatch and shared expert the same cast rows. The down GEMM writes its rows where
// the other layer's combine reads them. So a timed shared expert has no kernel that waits for others.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "bench/layer_traffic.hpp"
#include "bench/layer_weights.hpp"
#include "bench/rank_device.hpp"
#include "gemm/grouped_gemm.hpp"
#include "weft/communicator.hpp"
#include "weft/moe_layer.hpp"

namespace weft::cli {

class SharedLayer {
 public:
  struct Args {
    LayerShape shape;
    std::uint32_t layers = 1;                      // with weights and rows of their own
    std::uint32_t tokens = 0, virtual_tokens = 0;  // at most
    std::uint32_t seed = 0;                        // of the weights
    GemmTile tile = GemmTile::automatic;
  };
  // Local to a rank, which is one of `communicator`. `device` is the rank's, and outlives this.
  SharedLayer(RankDevice& device, const Communicator& communicator, const Args& args);

  // Before all else: the rows of these tokens, of each layer. Collective as RankDevice::run().
  void upload(Ranks::Seat& seat, const void* input, const std::vector<const LayerTokens*>& tokens);
  // Enqueues a layer's shared expert. All its calls between two uploads have one output. Under emulation rows of tokens
  // go to their first virtual tokens, and the others get none: a kernel more.
  void run(const SharedExpert& call, std::uint32_t layer);
  // After run(): compares some numbers of its GEMMs with sums on the host, and the places of its rows with those that a
  // layer's combine gives them. Empty if they are right.
  std::string check(std::uint32_t layer);

 private:
  struct One {
    LayerWeights weights;
    void *ids, *workspace, *places,
        *whole;  // places: by virtual token, the rows in front of its own; whole: as combined
  };
  MoeLayerCall call_of(const One& one, ExpertGemms& gemms, Stream stream);
  std::unique_ptr<ExpertGemms> open_gemms(std::uint32_t tokens) const;

  RankDevice& device_;
  Args args_;
  bool on_gpu_;
  Communicator alone_;
  MoeExchange exchange_;
  MoeLayer layer_;
  std::unique_ptr<ExpertGemms> gemms_;
  std::vector<One> of_;
  void* rows_;  // of the down GEMM, under emulation
  ExpertGemm last_up_, last_down_;
  SharedExpert last_;
};

}  // namespace weft::cli
