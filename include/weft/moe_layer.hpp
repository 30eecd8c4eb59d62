// A whole layer of experts: dispatch, up and gate GEMM, activation, down GEMM, combine; one after the other or in
// rounds. The GEMMs are the caller's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>

#include "weft/layer_schedule.hpp"
#include "weft/moe.hpp"

namespace weft {

namespace detail {
class LayerState;
}  // namespace detail

// One grouped GEMM of a layer, which the caller enqueues on `stream`, or makes before it returns on CPU ranks. For each
// local expert e of first_expert … first_expert + experts − 1 and each of its counts[e] rows:
//   output row = input row · weights of e
// Rows of e begin at row e · capacity (RowLayout::expert_masked) or offsets[e] (expert_contiguous) of both tensors.
// Counts include rows without room (Overflow): of an expert, or of all, only rows below `capacity` exist.
// Counts and offsets are on the device and complete when the GEMM runs. A GEMM must not write rows of other experts,
// which others may read or write meanwhile.
struct ExpertGemm {
  enum class Which : std::uint8_t {
    up,   // [rows, hidden] → [rows, 2 · intermediate]: gate, then up
    down  // [rows, intermediate] → [rows, hidden]
  };
  Which which = Which::up;
  std::uint32_t round = 0;  // of the layer's rounds; 0 if all experts are made at once
  std::uint32_t first_expert = 0, experts = 0;
  const void* input = nullptr;         // as dispatch gives it, or of MoeLayerArgs::down_cast
  const void* input_scales = nullptr;  // if rows are cast, in the exchange's scale_order
  void* output = nullptr;              // of the exchange's combine_type
  std::uint32_t input_columns = 0, output_columns = 0;
  RowLayout layout = RowLayout::expert_masked;
  std::uint32_t capacity = 0;             // as MoeExchange::capacity()
  const std::int32_t* counts = nullptr;   // [local experts]
  const std::int32_t* offsets = nullptr;  // [local experts + 1], if contiguous
  int num_sms = 0;                        // that it may use; 0: all
  Stream stream = nullptr;
};
using GroupedGemm = std::function<void(const ExpertGemm&)>;

// The shared expert of a layer, which has every token of this rank. The caller enqueues on `stream`, or makes before it
// returns on CPU ranks:
//   output row = the shared expert's row of the input row, plus the residual's row if there is one.
// Combine adds the output as it adds a residual: to the experts' sum in f32, which is rounded once. So the layer has
// the bits of a call without `shared` whose residual is this output.
struct SharedExpert {
  const void* input = nullptr;     // [tokens, hidden], the call's
  const void* scales = nullptr;    // the call's, if rows come with scales
  const void* residual = nullptr;  // [tokens, hidden], the call's, or null
  void* output = nullptr;          // [tokens, hidden] of the exchange's combine_type, in the workspace
  std::uint32_t tokens = 0, hidden = 0;
  int num_sms = 0;  // that it may use; 0: all
  Stream stream = nullptr;
};
using SharedRows = std::function<void(const SharedExpert&)>;

// A part of a layer's call, of which an observer hears in front of it and behind it.
struct LayerPart {
  enum class Which : std::uint8_t {
    dispatch,  // both halves in one
    dispatch_send,
    dispatch_wait,
    up,
    activation,
    down,
    combine,  // both halves in one
    combine_send,
    combine_wait,
    shared  // the shared expert
  };
  Which which = Which::dispatch;
  std::uint32_t round = 0;  // 0 for parts of all rounds
  bool begins = false;      // in front of the part
  Stream stream = nullptr;  // of the part
};
constexpr std::string_view name(LayerPart::Which which) {
  constexpr std::string_view names[] = {"dispatch", "dispatch send", "dispatch wait", "up",           "activation",
                                        "down",     "combine",       "combine send",  "combine wait", "shared expert"};
  return names[static_cast<int>(which)];
}
using LayerObserver = std::function<void(const LayerPart&)>;

struct MoeLayerArgs {
  std::uint32_t intermediate = 0;  // columns of an expert's middle: a multiple of 8, with a cast of 128
  // The cast of the down GEMM's input: none, or to e4m3 with scales like those of dispatch.
  RowCast down_cast = RowCast::none;
};

// Tensors as in DispatchArgs and CombineArgs.
struct MoeLayerCall {
  const void* input = nullptr;
  const void* scales = nullptr;
  const void* topk_ids = nullptr;
  bool topk_ids_are_i64 = false;
  const float* topk_weights = nullptr;
  std::uint32_t tokens = 0;
  std::uint32_t most_tokens = 0;   // as in DispatchArgs; by a ring rounds serve ring_rows at most
  std::uint32_t map = 0;           // as in DispatchArgs
  const void* residual = nullptr;  // with `shared` only that reads it
  void* output = nullptr;
  // MoeLayer::workspace_bytes(), aligned to 256 bytes, for this call alone until it has run, and in each of its
  // replays.
  void* workspace = nullptr;
  GroupedGemm up = {}, down = {};
  SharedRows shared = {};  // or none; not called on a rank without tokens
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  LayerSchedule schedule = LayerSchedule::automatic;
  ExpertRounds rounds = {};  // for LayerSchedule::rounds and combine_rounds
  // Processors of each part. Parts that run at once must fit on the GPU together. The names are those of DeepEP's pull
  // request 492. Of Weft's parts these are blocks, as in Launch::blocks: 0, chosen by size or by the table of
  // LayerSchedule::automatic, or 2 to as many as a launch may have. The most is 2 on CPU ranks, and by a ring one less
  // than by slots.
  int send_num_sms = 0, recv_num_sms = 0;                  // of dispatch's send, and of its waits
  int combine_send_num_sms = 0, combine_recv_num_sms = 0;  // of combine's sends, and of its wait
  // The numbers above hold only for parts that GEMMs of this call run beside: the waits of dispatch but the first, and
  // the sends of combine but the last. The other parts are chosen by size.
  bool alone_by_size = false;
  int cluster = 0;  // of the parts of dispatch and combine, as Launch::cluster
  // The numbers that the GEMMs and the shared expert are told: 0, all, to as many as the GPU has (on CPU ranks 256).
  // The activation takes up_num_sms at most.
  int up_num_sms = 0, down_num_sms = 0, shared_num_sms = 0;
  // For traces: called by the calling thread while it enqueues the parts, and may record events in their streams.
  LayerObserver observe = {};
};

// A layer over an exchange of RowLayout::expert_masked or expert_contiguous, without payloads. Creation is local to a
// rank; calls are collective over the exchange's group, like its dispatches. An exchange may have several layers.
//
// A call makes one dispatch and one combine of the exchange. Unless recorded, it keeps nothing of its arguments. On
// GPUs it enqueues everything behind the work of `stream`, and what `stream` gets next comes behind it. Two streams of
// the layer's own carry dispatch and combine if the schedule has rounds, and a third one the shared expert: beside
// everything in front of combine, or of its wait. So one call of a layer at a time may run on the GPU, and a graph
// captures all of it from `stream`. CPU ranks make every part in the calling thread, the shared expert behind the
// dispatch or its send.
//
// A Recording of CPU ranks holds the layer, its exchange, and copies of the call's functions. It calls none of them
// while it captures. Every replay calls each, the observer too, where a call would: with what was planned, and with the
// rows of this replay. Tensors, workspace and `tokens` stay those of the capture. Ids and weights are read anew, and −1
// stands for tokens that are not there. A function may make calls of Weft, but none of the layer's own exchange: each
// replay then plans them anew. A CUDA graph has no functions: they are called once, while it is captured.
//
// Errors: those of dispatch and combine. Errc::invalid_argument names an argument that cannot be, before anything has
// happened: all of them are checked before the dispatch. Peers that wait are told. An exception of a GEMM, of the
// shared expert or of the observer leaves the call unfinished on this rank. Its peers end at once with Errc::mismatch,
// and Fault::theirs names this rank's part and its round: "a call that it rejected (layer: down, round 1 of 0 to 2:
// …)". A replay does the same. Only under capture they are not told, and end by their deadlines. If all ranks fail, or
// the group has one rank, the exchange still waits for the rest of the call: release() and acquire() void it.
// Behind a replay that failed so, they come before any other call of the exchange: the host has no note of it.
class MoeLayer {
 public:
  static MoeLayer create(const MoeExchange& exchange, const MoeLayerArgs& args);

  std::size_t workspace_bytes() const;
  void run(const MoeLayerCall& call) const;
  // The experts alone, both GEMMs and the activation: of the rows that the last call has left in `workspace`. Local;
  // for measurements.
  void run_experts(const MoeLayerCall& call) const;

 private:
  explicit MoeLayer(std::shared_ptr<detail::LayerState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::LayerState> state_;
};

}  // namespace weft
