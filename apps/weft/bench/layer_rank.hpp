// One rank's layer of experts: its exchange, weights and tensors, and the parts that are timed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/layer_rival.hpp"
#include "bench/layer_shared.hpp"
#include "bench/layer_trace.hpp"
#include "bench/layer_traffic.hpp"
#include "bench/layer_weights.hpp"
#include "bench/rank_device.hpp"
#include "gemm/grouped_gemm.hpp"
#include "tuning/layer_steps.hpp"
#include "weft/moe_layer.hpp"

namespace weft::cli {

// The way in which a layer runs.
struct LayerWay {
  LayerSchedule schedule = LayerSchedule::plain;  // automatic: as the layer's table says
  std::uint32_t rounds = 1;
  int sms = 0;  // of each part of communication; 0: all of them, and the GEMMs have all, too
  RowPath path = RowPath::slots;
  std::uint32_t peo = 0;  // rounds as PeoLayer makes them, by this overlap method; 0: as the schedule does
  std::vector<std::uint32_t> experts = {};       // of each round; empty: as even as possible
  bool shared_first = false;                     // the shared expert in front of a plain layer; else beside it
  std::optional<detail::LayerSms> numbers = {};  // of each part; none: those that `sms` gives

  LayerRounds division() const { return {rounds, experts}; }
  bool operator==(const LayerWay&) const = default;
};

ExpertRounds division_of(const LayerWay& way);

// The choices that a layer's call is told, on a GPU of so many processors (0: a CPU).
detail::LayerStep step_of(const LayerWay& way, int processors);

// The key of its tuning table for calls whose rows go so.
detail::LayerSize table_size(const LayerShape& shape, RowPath path);

class LayerRank {
 public:
  static constexpr std::uint32_t kLayers = 4;  // whose weights and tokens come in turn, so that caches find none

  struct Args {
    LayerShape shape;
    std::uint32_t tokens = 0;             // most of one call
    std::vector<LayerRounds> peo = {};    // of calls of PeoLayer
    GemmTile tile = GemmTile::automatic;  // of GEMMs on GPUs
    int cluster = 0;                      // as Launch::cluster
  };
  // The exchange has a ring, and slots beside it.
  LayerRank(Ranks& ranks, const Ranks::Seat& seat, const Args& args);

  RankDevice& device() { return *device_; }
  // Before all else: tokens of each rank. They also choose the tile of the GEMMs. Collective.
  void upload(Ranks::Seat& seat, std::uint32_t tokens);
  // Whether so many tokens have slots.
  static bool have_slots(const LayerShape& shape, std::uint32_t tokens);
  // The choices of LayerSchedule::automatic for these tokens.
  detail::LayerStep served(RowPath path) const;
  // Enqueue a layer, or a part of it. Layers take turns.
  void run(const LayerWay& way, std::uint32_t layer);
  // Makes the output that run() must give, from plain layers by the ring: the shared expert, then all experts. For a
  // way of PeoLayer these are a layer of each round, with the sum so far as its residual. Not to be captured.
  void run_reference(const LayerWay& way, std::uint32_t layer);
  void experts(const LayerWay& way, std::uint32_t layer);   // both GEMMs and the activation of what came last
  void up(std::uint32_t layer);                             // the up GEMM and the activation, undivided
  void down(const LayerWay& way, std::uint32_t layer);      // the down GEMM, in the way's rounds
  void sum(std::uint32_t layer);                            // of owners, if a larger parallelism is emulated
  void shared(std::uint32_t layer);                         // the shared expert, behind a layer with one
  void exchange(const LayerWay& way, std::uint32_t layer);  // dispatch and combine
  // Either alone, of some rows. A dispatch need not have a combine, and a combine may be made again.
  DispatchHandle dispatch(const LayerWay& way, std::uint32_t layer, SomeRows rows);
  void combine(const LayerWay& way, const DispatchHandle& handle);
  // The same of each round of PeoLayer, one behind the other, after its layer has run.
  std::vector<DispatchHandle> dispatch_rounds(const LayerWay& way, std::uint32_t layer);
  void combine_rounds(const LayerWay& way, const std::vector<DispatchHandle>& handles);
  // In front of dispatches of some rows, by the rounds of a way.
  void choose_rows(const LayerWay& way, SomeRows rows);
  // Behind dispatches without a combine: the next layer finds none of them.
  void settle(const LayerWay& way);
  // The parts of a layer. Collective.
  std::vector<TracedPart> trace(Ranks::Seat& seat, const LayerWay& way, std::uint32_t layer);
  void clear();
  std::vector<std::byte> output();
  // Compares some numbers of both GEMMs with sums on the host. Empty if they are right.
  std::string check_gemms(std::uint32_t layer);

 private:
  struct Layer {
    LayerWeights experts;
    void *ids, *some_ids, *weights, *firsts;
    LayerTokens tokens;
    std::map<LayerRounds, std::vector<void*>> ids_of_rounds;
  };
  int processors() const;
  detail::Rounds rounds_of(const LayerWay& way) const;
  // The call's callback, if the layer has a shared expert beside it.
  SharedRows shared_of(const LayerWay& way, std::uint32_t layer);
  void run_observed(const LayerWay& way, std::uint32_t layer, const LayerObserver& observe);
  void* take(std::size_t bytes) { return device_->allocate(bytes); }
  MoeLayerCall call_of(const LayerWay& way, std::uint32_t layer);
  PeoLayer::Args peo_of(const LayerWay& way, std::uint32_t layer);
  void upload_rounds(Layer& layer);
  Device kind() const { return gemms_on_gpu_ ? Device::cuda : Device::cpu; }

  LayerShape shape_;
  std::uint32_t rank_, most_virtual_;
  int cluster_;
  const detail::GroupState& group_;
  std::unique_ptr<RankDevice> device_;
  MoeExchange exchange_;
  MoeLayer layer_;
  std::unique_ptr<ExpertGemms> gemms_;
  GroupedGemmArgs gemm_args_;
  bool gemms_on_gpu_ = false;
  std::vector<Layer> layers_;
  void *input_, *workspace_, *combined_, *output_, *spare_ = nullptr;
  std::unique_ptr<PeoLayer> peo_;                  // if it has rounds
  std::unique_ptr<SharedLayer> shared_;            // if the layer has a shared expert
  SharedExpert last_shared_;                       // as the layer gave it
  std::uint32_t tokens_ = 0, virtual_tokens_ = 0;  // the latter: most of any rank and layer
  ExpertGemm last_up_, last_down_;                 // as the layer gave them
};

}  // namespace weft::cli
