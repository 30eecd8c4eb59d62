// The operations that have tuning tables, and the algorithms that their tables may name.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string_view>

#include "weft/types.hpp"

namespace weft::detail {

// The ways of copies, reduce-scatters and crossings, by the sizes that they serve: a crossing in one hop; messages that
// fit into slots, in lines or sums of packs; and chunks (docs/glossary.md).
enum class MoveWay : std::uint8_t { one_hop, lines, chunks };
constexpr std::string_view name(MoveWay way) {
  constexpr std::string_view names[] = {"one-hop", "lines", "chunks"};
  return names[static_cast<int>(way)];
}

// The choice of a step: an all-reduce's algorithm, or the way of a move.
class TunedAlgorithm {
 public:
  constexpr TunedAlgorithm(Algorithm algorithm) : code_(static_cast<std::uint8_t>(algorithm)) {}
  constexpr TunedAlgorithm(MoveWay way) : code_(static_cast<std::uint8_t>(kFirstWay + static_cast<int>(way))) {}

  constexpr auto operator<=>(const TunedAlgorithm&) const = default;
  constexpr std::uint8_t code() const { return code_; }
  // Of a step of all-reduces.
  constexpr Algorithm algorithm() const { return static_cast<Algorithm>(code_); }
  constexpr std::string_view text() const {
    return code_ < kFirstWay ? name(algorithm()) : name(static_cast<MoveWay>(code_ - kFirstWay));
  }

 private:
  static constexpr int kFirstWay = 128;
  std::uint8_t code_;
};
constexpr std::string_view name(TunedAlgorithm algorithm) {
  return algorithm.text();
}

// Those whose steps are by bytes of a message come first. All-reduces with a norm use the all-reduces' table where they
// have none of their own; moves without one go by constants (ops/moves/move_plan.cpp). Steps of the others are by
// tokens of a rank.
enum class TunedOperation : std::uint8_t {
  all_reduce,
  all_reduce_rms_norm,
  all_gather,      // and all other copies: broadcasts, all-to-alls, columns
  reduce_scatter,  // and reduce
  crossing,
  crossing_rms_norm,
  moe_layer,
  moe_exchange  // a dispatch with its combine
};

struct TunedKind {
  TunedOperation operation;
  std::string_view name;
  std::string_view words = {};                      // of several, for people
  std::span<const TunedAlgorithm> algorithms = {};  // of its steps, from the smallest messages if it is a move
  bool grids = false;                               // steps may have blocks and threads
  int most_threads = 0;                             // … of these at most
  bool detours = false;                             // the table may have detour_bytes
  bool is_move() const { return !algorithms.empty() && algorithms.back() == TunedAlgorithm(MoveWay::chunks); }
};

inline constexpr TunedAlgorithm kAllReduceSteps[] = {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined};
inline constexpr std::span kNormSteps = std::span(kAllReduceSteps).first(2);
inline constexpr TunedAlgorithm kCrossingSteps[] = {MoveWay::one_hop, MoveWay::lines, MoveWay::chunks};
inline constexpr std::span kMoveSteps = std::span(kCrossingSteps).last(2);

inline constexpr TunedKind kTunedKinds[] = {
    {TunedOperation::all_reduce, "all_reduce", "all-reduces", kAllReduceSteps, true, 1024},
    {TunedOperation::all_reduce_rms_norm, "all_reduce_rms_norm", "norms", kNormSteps},
    {TunedOperation::all_gather, "all_gather", "gathers", kMoveSteps, true, 512, true},
    {TunedOperation::reduce_scatter, "reduce_scatter", "scatters", kMoveSteps, true, 512, true},
    {TunedOperation::crossing, "crossing", "crossings", kCrossingSteps, true, 512},
    {TunedOperation::crossing_rms_norm, "crossing_rms_norm", "crossings with a norm", kCrossingSteps},
    {TunedOperation::moe_layer, "moe_layer", "layers"},
    {TunedOperation::moe_exchange, "moe_exchange", "exchanges"}};
constexpr const TunedKind& kind_of(TunedOperation operation) {
  return kTunedKinds[static_cast<int>(operation)];
}
constexpr std::string_view name(TunedOperation operation) {
  return kind_of(operation).name;
}
// Those whose steps are by bytes.
inline constexpr std::span kTunedBySize = std::span(kTunedKinds).first(static_cast<int>(TunedOperation::moe_layer));

constexpr bool is_by_tokens(TunedOperation operation) {
  return operation >= TunedOperation::moe_layer;
}

}  // namespace weft::detail
