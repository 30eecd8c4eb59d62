// Tables of the algorithm and the grid for each size of an operation. They are measured (`weft tune`), kept as JSON in
// tuning/ and compiled in, or read from a user's file. Ranks of a communicator use rank 0's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tuning/exchange_steps.hpp"
#include "tuning/layer_steps.hpp"
#include "tuning/token_steps.hpp"
#include "tuning/tuned_operations.hpp"
#include "weft/types.hpp"

namespace weft::detail {

// Serves messages of up to `up_to` bytes that no earlier step serves. For one-shot the bytes on the wire count; for i32
// these are twice the message's. A move's message is what one rank sends to another, a crossing's what a group has. All
// ranks change their way at the same size; the grid of a step is each rank's own.
struct TuningStep {
  std::uint64_t up_to = UINT64_MAX;
  TunedAlgorithm algorithm = Algorithm::one_shot;
  int blocks = 0, threads = 0;  // 0: chosen by size (ops/all_reduce/all_reduce_plan.cpp, ops/moves/move_plan.cpp)

  bool operator==(const TuningStep&) const = default;
};

inline constexpr std::size_t kMostTuningSteps = 64;  // of a table

inline constexpr std::string_view kCpuProcessor = "CPU";

// A rank's GPU, or its CPU. The numbers find a table for a GPU that has none; 0: not known, or a CPU.
struct Processor {
  std::string name;    // CUDA's name of the GPU, or kCpuProcessor
  int capability = 0;  // compute capability: 90 for 9.0
  int multiprocessors = 0;

  bool operator==(const Processor&) const = default;
};

struct TuningTable {
  Processor processor = {};
  int ranks = 0;  // of the group; 0: any number, but not of layers and exchanges
  TunedOperation operation = TunedOperation::all_reduce;
  LayerSize layer = {};        // of moe_layer
  ExchangeSize exchange = {};  // of moe_exchange
  std::string origin = {};     // "measured" or "extrapolated"
  std::string note = {};       // for people
  // Of all_gather and reduce_scatter: least bytes that a detour must spare the busiest link; 0: by constants.
  std::uint64_t detour_bytes = 0;
  std::vector<TuningStep> steps = {};
  std::vector<LayerStep> layer_steps = {};        // of moe_layer, instead
  std::vector<ExchangeStep> exchange_steps = {};  // of moe_exchange, instead

  bool operator==(const TuningTable&) const = default;
  // Whether a table takes the other's place in a list.
  bool serves_as(const TuningTable& other) const {
    return processor.name == other.processor.name && ranks == other.ranks && operation == other.operation &&
           layer == other.layer && exchange == other.exchange;
  }
};

// `file` is named in errors: Errc::invalid_argument with key, value and allowed range.
std::vector<TuningTable> parse_tuning(std::string_view json, const std::string& file);
std::vector<TuningTable> read_tuning(const std::string& file);
// One step a line, in the form that parse_tuning() reads.
std::string to_json(const std::vector<TuningTable>& tables);

// The tables of tuning/*.json; with_shipped(): `own`, and each of these that no own table replaces.
const std::vector<TuningTable>& shipped_tuning();
std::vector<TuningTable> with_shipped(std::vector<TuningTable> own);

// The table for a group, and its name and reason in words. Tables for twice as many ranks or half as many come last.
// Among the others a GPU without a table takes one of its compute capability, then one of the nearest number of
// multiprocessors. Then the nearest number of ranks counts, a larger before a smaller one. Earlier tables come first. A
// norm's own table must be for as many ranks; otherwise the all-reduces' serves. Moves go by constants before they take
// a table for twice as many ranks or half as many.
struct TuningChoice {
  const TuningTable* table = nullptr;  // one of `tables`; null: a move without one
  bool exact = false;                  // measured or extrapolated for this processor and number of ranks
  std::string reason = {};
};
TuningChoice choose_tuning(const std::vector<TuningTable>& tables, const Processor& processor, int ranks,
                           TunedOperation operation = TunedOperation::all_reduce);

// The table for layers of this very size among so many ranks with this very processor, or null: times of GEMMs on other
// processors say nothing.
const TuningTable* choose_layer_tuning(std::span<const TuningTable> tables, const Processor& processor, int ranks,
                                       const LayerSize& size);
// The table for an exchange among so many ranks, as choose_tuning() takes one; null: there is none. Layout and cast
// must be its own. Ranks, columns, experts of a rank and top_k must be less than twice and more than half as many.
// Behind processor and ranks, the nearest of these numbers count, in this order.
TuningChoice choose_exchange_tuning(std::span<const TuningTable> tables, const Processor& processor, int ranks,
                                    const ExchangeSize& size);
// "NVIDIA H200, 8 ranks (measured)".
std::string table_in_words(const TuningTable& table);

// Steps of the shipped table for such ranks on any GPU.
std::span<const TuningStep> shipped_steps(Device device, int ranks);

// A group's own steps; the shipped ones if it has none.
inline std::span<const TuningStep> steps_or_shipped(std::span<const TuningStep> own, Device device,
                                                    std::uint32_t ranks) {
  return own.empty() ? shipped_steps(device, static_cast<int>(ranks)) : own;
}

// The step that serves a message; `steps` are not empty.
const TuningStep& step_for(std::span<const TuningStep> steps, std::uint64_t bytes, std::uint64_t wire_bytes);

// The algorithms by NVLink's switches.
constexpr bool is_multimem(Algorithm algorithm) {
  return algorithm == Algorithm::multimem_one_shot || algorithm == Algorithm::multimem_two_shot;
}

// Differs if the steps differ.
std::uint32_t fingerprint_of(const std::vector<TuningTable>& tables);

}  // namespace weft::detail
