// What is measured, and how: the words that the CPU's and the GPU's benchmark share.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/pattern.hpp"
#include "common/ranks.hpp"
#include "weft/collectives.hpp"

namespace weft::cli {

// What is done. four_tensors is an all_gather_v of a token's hidden state, scales, ids and weights in one call; the
// attn_ ones are those of attention groups, all at the same time, the others those of all ranks.
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
  all_reduce_rms_norm
};

constexpr std::string_view name(Operation operation) {
  constexpr std::string_view names[] = {"all_reduce",          "all_gather",       "reduce_scatter",
                                        "all_to_all",          "broadcast",        "barrier",
                                        "all_gather_v",        "reduce_scatter_v", "four_tensors",
                                        "attn_reduce_scatter", "attn_all_gather",  "all_reduce_rms_norm"};
  return names[static_cast<int>(operation)];
}

constexpr bool is_ragged(Operation operation) {
  return operation >= Operation::all_gather_v && operation <= Operation::attn_all_gather;
}

constexpr bool is_in_groups(Operation operation) {
  return operation == Operation::attn_reduce_scatter || operation == Operation::attn_all_gather;
}

// Whose outputs may lie in symmetric memory.
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

// Who has the tokens of a ragged gather: every attention group as many, or one of them and the others one each.
enum class Load : std::uint8_t { balanced, busy };

constexpr std::string_view name(Load load) {
  return load == Load::balanced ? "balanced" : "busy";
}

// Who does it: an algorithm of Weft's, or a peer.
enum class Contender : std::uint8_t {
  automatic,
  one_shot,
  two_shot,
  bulk,
  multimem_one_shot,
  multimem_two_shot,
  padded,      // a ragged gather's rows by Weft's equal form, all ranks as large as the largest
  one_tensor,  // the bytes of four_tensors as one
  symmetric,   // a copy whose outputs lie in symmetric memory
  push,        // no contender but a bound: GPUs store to each other's memory as many bytes, and nobody waits
  nccl,
  nccl_symmetric,  // NCCL on buffers from ncclMemAlloc in symmetric windows
  gloo_ring,
  gloo_bcube,
  torch_nccl,  // the torch columns come from bench/torch_peer.py
  torch_one_shot,
  torch_two_shot,
};

constexpr std::string_view name(Contender contender) {
  constexpr std::string_view names[] = {
      "automatic",  "one-shot",       "two-shot",      "bulk", "multimem-one-shot", "multimem-two-shot", "padded",
      "one tensor", "symmetric",      "plain push",    "NCCL", "NCCL symm.",        "Gloo ring",         "Gloo bcube",
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
  return contender > Contender::push;
}

// How time is taken.
//   batch     CPU: a batch of calls between two barriers of threads; median of the batches, maximum over ranks
//   graph     a CUDA graph of 20 operations, the second of two back-to-back replays between CUDA events; median of the
//             samples, maximum over ranks
//   producer  the same with a kernel that rewrites the input before every operation, as a model does; the time of a
//             graph that holds only the producers is taken off
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
  std::size_t count = 0;    // elements; of a gather or scatter: of all ranks' rows
  std::int64_t rows = 0;    // tokens, where the size was given as rows × hidden, else 0; of each attention group
  std::int64_t hidden = 0;  // likewise
  DataType type = DataType::bf16;
  ReduceOp op = ReduceOp::sum;
  Contender contender = Contender::automatic;
  Method method = Method::batch;
  Launch launch = {};

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
  std::string detail = {};                            // what is wrong, or why nothing was measured
  std::vector<int> wrong_ranks = {};                  // whose output was wrong
  std::string chosen = {};                            // the algorithm that a call of Weft's took
  double us = 0;                                      // per operation
  std::vector<std::vector<double>> samples_us = {};   // [rank][sample], per operation
  std::vector<std::vector<double>> baseline_us = {};  // producer: likewise, of the producer alone

  // Algorithm bandwidth: the point's bytes over the time, in GB/s (10^9).
  double gb_per_s() const { return us > 0 ? static_cast<double>(point.bytes()) / us / 1e3 : 0; }
};

inline double median(std::vector<double> samples) {
  if (samples.empty()) return 0;
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>(samples.size() / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// A time and its spread: all three of the rank whose median is the largest, which every rank waits for.
struct Figure {
  double us = 0, least = 0, most = 0;  // the median, and the samples around it
  std::size_t samples = 0;
};
// `baseline`: as in Result; its median comes off.
Figure figure_of(const std::vector<std::vector<double>>& samples,
                 const std::vector<std::vector<double>>& baseline = {});
Figure figure_of(const Result& result);

// The algorithm named by the flight recorder's last call.
std::string chosen_algorithm(const Group& group);

// True for the errors of a call that every rank rejects alike, before anything is sent: such a point is skipped.
inline bool is_rejection(const Error& error) {
  return error.code() == Errc::invalid_argument || error.code() == Errc::unsupported;
}

// The time of one operation, from the samples: see Method.
double operation_us(const Result& result);

// Adds the samples of another run of the same point; one wrong run makes the whole wrong.
void append(Result& result, const Result& more);

struct BenchArgs {
  Data data = Data::integers;
  std::size_t max_bytes = 0;  // largest message that will be asked for
  bool peers = true;          // NCCL or Gloo beside Weft
  bool multicast = false;     // the algorithms by NVLink's switches as well
};

// Measures points on the ranks that it was opened with. Collective: in every process of a launched job the same points
// must be run in the same order, and every process gets the same results.
class Bench {
 public:
  virtual ~Bench() = default;

  // Who can run here, Weft's own first.
  virtual std::vector<Contender> contenders(Operation operation = Operation::all_reduce) const = 0;
  virtual std::vector<Method> methods() const = 0;
  // Why a peer that one might expect is missing, a sentence each.
  virtual std::vector<std::string> notes() const = 0;
  // Takes `samples` samples (Method::vllm: always three). Throws weft::Error when a rank fails; a wrong result is not
  // an error but Verdict::wrong.
  virtual Result run(const Point& point, int samples) = 0;
};

// All-reduces.
std::unique_ptr<Bench> open_bench(Ranks& ranks, const BenchArgs& args);

}  // namespace weft::cli
