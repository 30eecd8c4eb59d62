// The schedule of DeepEP's pull request 492 (per-expert overlap) on Weft's transport, to measure rounds beside it.
//
// Each round is a dispatch and a combine of its own: a row for experts of several rounds is sent in each of them, and
// every round pays the whole latency. Rounds are summed one after the other, each rounded to the combine's type. So the
// sums have the bits of plain layers of each round's experts, of which each has the sum so far as its residual. They
// differ from those of one part after the other by these roundings.
//
// Its overlap methods, by the numbers of its users (sgl-project/sglang#13442, alibaba/rtp-llm#605):
//   1  all sends first; then each round's wait beside the GEMMs of the round before
//   2  sends and waits of rounds in turn
//   3  the same, and a round's wait beside the next round's send
// Method 4 divides combine alone, as LayerSchedule::combine_rounds does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "bench/rank_device.hpp"
#include "fabric/side_streams.hpp"
#include "ops/moe/exchange.hpp"
#include "weft/moe_layer.hpp"

namespace weft::cli {

class PeoLayer {
 public:
  // Collective; an exchange for each round of calls with `rounds` at most.
  PeoLayer(const Ranks::Seat& seat, RankDevice& device, const MoeExchangeArgs& exchange, const MoeLayerArgs& layer,
           std::uint32_t rounds);

  struct Args {
    MoeLayerCall call = {};       // as a plain layer's; its ids are not read
    detail::Rounds rounds = {};   // of a rank's experts
    std::vector<void*> ids = {};  // of each round; those of other rounds' experts are −1
    std::uint32_t method = 1;
    // Processors of each part beside GEMMs, half of them by method 3; 0: all. Parts beside none take all.
    int sms = 0;
    void* spare = nullptr;        // as large as the output
    void* shared_rows = nullptr;  // that the call's shared expert writes
  };
  static constexpr std::uint32_t kMethods = 3;

  // The first call with so many rounds must not be captured. The shared expert runs on a stream of its own, up to the
  // first round's last wait.
  void run(const Args& args);
  // After run(): the dispatches of all rounds alone, one behind the other, and the combines of such dispatches. The
  // former need not have a combine, and the latter may be made again. All have the processors of `sms`.
  std::vector<DispatchHandle> dispatch(const Args& args);
  void combine(const Args& args, const std::vector<DispatchHandle>& handles);

 private:
  struct Round {
    MoeExchange exchange;
    MoeLayer layer;
    void* workspace;
    ExpertGemm up = {}, down = {};  // as the layer gives them: they tell where it keeps its rows
  };
  MoeLayerCall call_of(Round& round, const Args& args, std::uint32_t number) const;
  DispatchArgs dispatch_of(const Args& args, std::uint32_t number) const;
  CombineArgs combine_of(const Args& args, std::uint32_t number, const DispatchHandle& handle) const;
  void enqueue_shared(const Args& args) const;
  std::vector<CombineArgs> enqueue_rounds(const Args& args);

  std::unique_ptr<detail::SideStreams> streams_, more_streams_;
  std::vector<Round> rounds_;
};

}  // namespace weft::cli
