// Operations, contenders, methods and results that the CPU's and the GPU's benchmarks share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/pattern.hpp"
#include "common/ranks.hpp"
#include "weft/collectives.hpp"

namespace weft::cli {

// four_tensors is an all_gather_v of a token's hidden state, scales, ids and weights in one call. The attn_ ones run in
// all attention groups at the same time. The others run on all ranks.
enum class Operation : std::uint8_t {
  all_reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  broadcast,
  barrier,
  all_gather_v,
  reduce_scatter_v,
  four_tensors,
  attn_reduce_scatter,
  attn_all_gather,
  all_reduce_rms_norm,
  all_gather_columns,
  gather_sums,
  scatter_sums
};

constexpr std::string_view name(Operation operation) {
  constexpr std::string_view names[] = {
      "all_reduce",      "all_gather",          "reduce_scatter",     "all_to_all",   "broadcast",
      "barrier",         "all_gather_v",        "reduce_scatter_v",   "four_tensors", "attn_reduce_scatter",
      "attn_all_gather", "all_reduce_rms_norm", "all_gather_columns", "gather_sums",  "scatter_sums"};
  return names[static_cast<int>(operation)];
}

constexpr bool is_ragged(Operation operation) {
  return operation >= Operation::all_gather_v && operation <= Operation::attn_all_gather;
}

constexpr bool is_crossing(Operation operation) {
  return operation == Operation::gather_sums || operation == Operation::scatter_sums;
}

constexpr bool is_in_groups(Operation operation) {
  return operation == Operation::attn_reduce_scatter || operation == Operation::attn_all_gather;
}

// Whether the operation's outputs may lie in symmetric memory.
constexpr bool is_copy(Operation operation) {
  switch (operation) {
    case Operation::all_gather:
    case Operation::all_to_all:
    case Operation::broadcast:
    case Operation::all_gather_v:
    case Operation::four_tensors:
    case Operation::attn_all_gather:
      return true;
    default:
      return false;
  }
}

// The tokens of a ragged gather or a crossing: as many in every attention group, or many in one group and one in each
// other group.
enum class Load : std::uint8_t { balanced, busy };

constexpr std::string_view name(Load load) {
  return load == Load::balanced ? "balanced" : "busy";
}

// An algorithm of Weft's, or a peer.
enum class Contender : std::uint8_t {
  automatic,
  one_shot,
  two_shot,
  pipelined,
  multimem_one_shot,
  multimem_two_shot,
  padded,      // a ragged gather by Weft's equal operation, with the largest rank's rows on every rank
  one_tensor,  // the bytes of four_tensors as one tensor
  separate,    // by the calls that it replaces
  unfused,     // without the norm that is fused with it
  symmetric,   // a copy with its outputs in symmetric memory
  push,        // a bound, no contender: GPUs store as many bytes to each other's memory, and none waits
  copy,        // a bound, too: a GPU copies bytes from its memory to its memory
  nccl,
  nccl_symmetric,  // NCCL on buffers from ncclMemAlloc in symmetric windows
  nccl_grouped,    // NCCL with an operation for each rank's rows, all in a group
  gloo_ring,
  gloo_bcube,
  torch_nccl,  // the torch columns come from bench/torch_peer.py
  torch_one_shot,
  torch_two_shot,
};

constexpr std::string_view name(Contender contender) {
  constexpr std::string_view names[] = {
      "automatic",  "one-shot",       "two-shot",      "pipelined",    "multimem-one-shot", "multimem-two-shot",
      "padded",     "one tensor",     "separate",      "without norm", "symmetric",         "plain push",
      "plain copy", "NCCL",           "NCCL symm.",    "NCCL grouped", "Gloo ring",         "Gloo bcube",
      "torch NCCL", "torch one-shot", "torch two-shot"};
  return names[static_cast<int>(contender)];
}

constexpr bool is_multimem(Contender contender) {
  return contender == Contender::multimem_one_shot || contender == Contender::multimem_two_shot;
}
constexpr bool is_weft(Contender contender) {
  return contender <= Contender::symmetric;
}
constexpr bool is_peer(Contender contender) {
  return contender > Contender::copy;
}
// A part of the bound: no rank waits for another one.
constexpr bool is_bound(Contender contender) {
  return contender == Contender::push || contender == Contender::copy;
}

// The ways to take time.
//   batch     CPU: a batch of calls between two barriers of threads; median of the batches, maximum over ranks
//   graph     a CUDA graph of 20 operations, the second of two back-to-back replays between CUDA events; median of the
//             samples, maximum over ranks
//   producer  like graph, with a kernel that rewrites the input before every operation, as a model does; the time of a
//             graph of only the producers is subtracted
//   vllm      benchmark_device_communicators.py of vLLM: a graph of 10 operations, 5 warm-up replays, 50 back-to-back
//             replays by the wall clock of rank 0; the median of three such measurements
enum class Method : std::uint8_t { batch, graph, producer, vllm };

constexpr std::string_view name(Method method) {
  constexpr std::string_view names[] = {"batch", "graph", "producer", "vllm"};
  return names[static_cast<int>(method)];
}

// One cell of a table.
struct Point {
  Operation operation = Operation::all_reduce;
  Load load = Load::balanced;
  std::size_t count = 0;    // elements; for a gather or scatter: of all ranks' rows
  std::int64_t rows = 0;    // tokens (of each attention group) if the size is rows × hidden, else 0
  std::int64_t hidden = 0;  // hidden if the size is rows × hidden, else 0
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Contender contender = Contender::automatic;
  Method method = Method::batch;
  Launch launch = {};
  Padding padding = Padding::none;  // of a crossing's slots

  std::size_t bytes() const { return count * size_of(type); }
};

enum class Verdict : std::uint8_t { ok, wrong, unavailable };

constexpr std::string_view name(Verdict verdict) {
  constexpr std::string_view names[] = {"ok", "wrong", "unavailable"};
  return names[static_cast<int>(verdict)];
}

struct Result {
  Point point = {};
  Verdict verdict = Verdict::unavailable;
  std::string detail = {};                            // the fault, or the reason why nothing was measured
  std::vector<int> wrong_ranks = {};                  // ranks whose output was wrong
  std::string chosen = {};                            // the algorithm of Weft's call
  double us = 0;                                      // per operation
  std::vector<std::vector<double>> samples_us = {};   // [rank][sample], per operation
  std::vector<std::vector<double>> baseline_us = {};  // producer: the same, of the producer alone

  // Algorithm bandwidth: the point's bytes over the time, in GB/s (10^9).
  double gb_per_s() const { return us > 0 ? static_cast<double>(point.bytes()) / us / 1e3 : 0; }
};

inline double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// A time and its spread, of the rank with the largest median: every rank waits for it.
struct Figure {
  double us = 0, least = 0, most = 0;  // the median, and the samples around it
  std::size_t samples = 0;
};
// `baseline`: as in Result; its median is subtracted.
Figure figure_of(const std::vector<std::vector<double>>& samples,
                 const std::vector<std::vector<double>>& baseline = {});
Figure figure_of(const Result& result);

// The algorithm of the flight recorder's last call.
std::string chosen_algorithm(const Group& group);

// True for errors that every rank throws alike before anything is sent. Such a point is skipped.
inline bool is_rejection(const Error& error) {
  return error.code() == Errc::invalid_argument || error.code() == Errc::unsupported;
}

// The time of one operation, computed from the samples (see Method).
double operation_us(const Result& result);

// Adds the samples of another run of the same point. One wrong run makes the result wrong.
void append(Result& result, const Result& more);

class Peer;

struct BenchArgs {
  Data data = Data::integers;
  std::size_t max_bytes = 0;  // largest message of all points
  bool peers = true;          // also measures NCCL or Gloo
  bool multicast = false;     // also measures the algorithms that use NVLink's switches
  // Opens one rank's end of a peer instead of NCCL or Gloo.
  std::function<std::unique_ptr<Peer>(Ranks::Seat& seat, std::size_t max_bytes)> open_peer = {};
};

// Measures points on its ranks. Collective: every process of a launched job must run the same points in the same order,
// and every process gets the same results.
class Bench {
 public:
  virtual ~Bench() = default;

  // The contenders that can run here, Weft's own first.
  virtual std::vector<Contender> contenders(Operation operation = Operation::all_reduce) const = 0;
  virtual std::vector<Method> methods() const = 0;
  // A sentence for each expected peer that is missing, with the reason.
  virtual std::vector<std::string> notes() const = 0;
  // Takes `samples` samples (Method::vllm: always three). Throws weft::Error if a rank fails. A wrong result is no
  // error but Verdict::wrong.
  virtual Result run(const Point& point, int samples) = 0;
};

// Measures all-reduces.
std::unique_ptr<Bench> open_bench(Ranks& ranks, const BenchArgs& args);

}  // namespace weft::cli
