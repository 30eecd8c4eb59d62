// The order of a layer's parts, and the stream of each. Calls have it (layer_run.cpp), and so have layers in virtual
// time (sim_timed_layer.cpp).
#pragma once

#include <cstdint>

namespace weft::detail {

// The caller's, and the layer's own: of dispatch and of combine in rounds, and of the shared expert.
enum class LayerStream : std::uint8_t { callers, there, back, shared };

// `Parts` enqueues them, each on a stream, and GEMMs on the caller's:
//   order(before, behind)   what `behind` gets from now on waits for what `before` has got
//   dispatch, combine       both halves in one
//   dispatch_send, dispatch_wait, combine_send, combine_wait: halves; some of one round
//   up                      the up GEMM and the activation, of all experts
//   down, experts           of one round; the experts are both GEMMs and the activation
//   shared_expert           if has_shared()
template <class Parts>
class LayerOrder {
 public:
  LayerOrder(Parts& parts, std::uint32_t rounds) : parts_(parts), rounds_(rounds) {}

  // One part after the other.
  void plain() {
    dispatch();
    parts_.experts(0);
    if (parts_.has_shared()) parts_.order(kShared, kCallers);
    parts_.combine(kCallers);
  }

  // Dispatch, experts and combine of different rounds at once.
  void in_rounds() {
    fork_shared();
    parts_.order(kCallers, kThere);
    parts_.dispatch_send(kThere);
    if (parts_.has_shared()) parts_.shared_expert(kShared);
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      parts_.dispatch_wait(kThere, round);
      parts_.order(kThere, kCallers);
      parts_.experts(round);
      send_back(round);
    }
    end();
  }

  // Combine beside the down GEMM.
  void combine_in_rounds() {
    dispatch();
    parts_.up();
    for (std::uint32_t round = 0; round < rounds_; ++round) {
      parts_.down(round);
      send_back(round);
    }
    end();
  }

 private:
  static constexpr LayerStream kCallers = LayerStream::callers, kThere = LayerStream::there, kBack = LayerStream::back,
                               kShared = LayerStream::shared;

  // The shared expert begins beside what follows, and is enqueued behind what sends rows.
  void fork_shared() {
    if (parts_.has_shared()) parts_.order(kCallers, kShared);
  }
  void dispatch() {
    fork_shared();
    parts_.dispatch(kCallers);
    if (parts_.has_shared()) parts_.shared_expert(kShared);
  }
  void send_back(std::uint32_t round) {
    parts_.order(kCallers, kBack);
    parts_.combine_send(kBack, round);
  }
  void end() {
    if (parts_.has_shared()) parts_.order(kShared, kBack);
    parts_.combine_wait(kBack);
    parts_.order(kBack, kCallers);
  }

  Parts& parts_;
  std::uint32_t rounds_;
};

}  // namespace weft::detail
