// Mixture of experts: tokens travel to the ranks that hold their experts, and their results come back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "weft/collectives.hpp"
#include "weft/communicator.hpp"
#include "weft/types.hpp"

namespace weft {

namespace detail {
class ExchangeState;
}  // namespace detail

// What a row of tokens consists of.
enum class RowType : std::uint8_t {
  bf16,
  f16,
  fp8,  // e4m3; with or without scales, which travel unread beside the row
};

// What dispatch does to a row on its way. What is cast is limited to ±448 times its scale; NaN stays NaN. Among columns
// of one scale, an infinity becomes NaN and every other number 0.
enum class RowCast : std::uint8_t {
  none,      // every bit arrives as it was
  fp8,       // bf16 or f16 become e4m3 with one f32 scale per 128 columns: max(amax, 1e-4) / 448
  fp8_ue8m0  // the same with scales that are powers of two, rounded up, given as one byte each: the biased exponent
};

// Columns that share one scale.
inline constexpr std::uint32_t kScaleColumns = 128;

// Where dispatch puts rows, and where combine finds what the experts made of them.
enum class RowLayout : std::uint8_t {
  expert_masked,      // [local experts, capacity, hidden]: the first rows of an expert's block are its rows
  expert_contiguous,  // [capacity, hidden]: experts one behind the other; each begins at a multiple of `alignment`
  rank_major          // [ranks, tokens, hidden]: a token's row comes once, whatever experts it is for
};

constexpr std::string_view name(RowLayout layout) {
  constexpr std::string_view names[] = {"masked", "contiguous", "rank-major"};
  return names[static_cast<int>(layout)];
}

// Where dispatch puts the scales that it makes. The bytes of a word where a row has no scale left, and those of rows
// that no token takes, are not written.
enum class ScaleOrder : std::uint8_t {
  rows,    // [rows, hidden / 128]: a row's scales lie together
  columns  // words of four bytes, an f32 or four neighbouring scales of fp8_ue8m0, the first one lowest, transposed:
           // expert_masked: [local experts, words, capacity]; else [words, Exchange::output_rows()]
};

constexpr std::string_view name(ScaleOrder order) {
  return order == ScaleOrder::rows ? "rows" : "columns";
}

// Of rows for which there is no room. error: a fault of the experts' rank, Errc::overflow, on which counts are right as
// far as they were written. drop: the rows are left out, and counts say how many came.
enum class Overflow : std::uint8_t { error, drop };

// What defines an exchange; the same on every rank of the group.
struct ExchangeArgs {
  std::uint32_t tokens = 0;      // of one rank at most, in one dispatch; 1 … 1024
  std::uint32_t hidden = 0;      // columns, 2^20 at most; a row is a multiple of 16 bytes (with a cast: of 128 columns)
  std::uint32_t experts = 0;     // of all ranks; 1 … 4096
  std::uint32_t top_k = 0;       // experts of a token at most; 1 … 32
  RowType type = RowType::bf16;  // of the rows that dispatch is given
  RowCast cast = RowCast::none;
  // Where rows are cast. Columns have places for a multiple of 4 rows (16 bytes, which TMA asks for): so must
  // `capacity` be, and rank_major N · tokens, of N ranks.
  ScaleOrder scale_order = ScaleOrder::rows;
  // fp8 rows that are given with scales: bytes of a row's scales, a multiple of 4, 4 per column at most.
  std::uint32_t scale_bytes = 0;
  DataType combine_type = DataType::bf16;  // of the rows that combine is given and returns: bf16 or f16
  RowLayout layout = RowLayout::expert_masked;
  std::uint32_t alignment = 1;  // expert_contiguous: of the rows at which experts begin; 1 … 1024
  // Rows of one expert, of N ranks N · tokens · top_k at most, and together less than 2^32 on a rank.
  // expert_contiguous: of all of a rank's experts, with the pads behind each of them, the last one's as well (experts
  // of 7 rows aligned to 4 take 8), so at most N · tokens · top_k, and alignment − 1 for each expert or replica of all
  // ranks. 0: as many as there can be if no token names an expert twice; rank_major: always 0. This number and those
  // above are rounded up to a multiple of 4 where the scales' order is columns.
  std::uint32_t capacity = 0;
  Overflow overflow = Overflow::error;
  // Combine multiplies by the weights that dispatch was given; rank_major: they go to the experts' ranks, and combine
  // takes rows as they are.
  bool weighted = true;
  // Rank of the group that holds each expert; a rank's experts are numbered in ascending order. Empty: as even as can
  // be, in contiguous blocks, larger ones first.
  std::vector<std::uint32_t> rank_of_expert = {};
  // Instead of it, where experts have replicas: the ranks that hold each expert, none of them twice. Of an expert with
  // n replicas, number (source rank + token) mod n serves a token, where `token` is its number in the source's
  // dispatch. A replica is an expert of its rank like any other; `experts` counts those that ids name, and all replicas
  // together are 4096 at most.
  std::vector<std::vector<std::uint32_t>> ranks_of_expert = {};
  // Dispatches whose combine has not ended (or, in halves, been waited for) yet, at most; 1 … 64.
  std::uint32_t generations = 2;
};

// Names a dispatch to the combine that belongs to it. To be passed on as it is.
struct Ticket {
  std::uint32_t generation = 0;
  std::uint64_t exchange = 0;  // of those that the communicator ever made, from 1
  std::uint64_t number = 0;    // of the dispatch, from 1; 0: it was captured, and may be made many times
  std::uint32_t tokens = 0;    // of this rank

  bool operator==(const Ticket&) const = default;
};

// Tensors are dense. Rows begin at a multiple of 16 bytes, scales of 4, all else of the size of an element. No tensor
// of a call overlaps another one. They are the caller's and stay until the call has run; nothing is kept of them.
struct DispatchArgs {
  const void* input = nullptr;     // [tokens, hidden]
  const void* scales = nullptr;    // [tokens, scale_bytes], where the exchange has scale_bytes
  const void* topk_ids = nullptr;  // [tokens, top_k] i32, or i64; one outside 0 … experts − 1 stands for none
  bool topk_ids_are_i64 = false;
  const float* topk_weights = nullptr;  // [tokens, top_k], where the exchange is weighted
  std::uint32_t tokens = 0;             // of this rank, 0 … ExchangeArgs::tokens; ranks may differ

  // Outputs, on the device, of Exchange::output_rows() rows. Rows that no token takes are not written.
  void* output = nullptr;  // [rows, hidden]
  // Where rows have scales: as `scale_order` says, f32, or bytes with fp8_ue8m0; or [rows, scale_bytes] as they came.
  // A GEMM that reads columns by TMA wants them to begin at a multiple of 16 bytes.
  void* output_scales = nullptr;
  // [local experts]: entries that came for each, those without room included.
  std::int32_t* counts = nullptr;
  // [local experts + 1], expert_contiguous: the row where each expert begins; last, where the next one would. As far as
  // there is room they are places in the output.
  std::int32_t* offsets = nullptr;
  // [rows], or null: whose token a row is, source rank · ExchangeArgs::tokens + token; −1 between an expert's rows and
  // the next multiple of `alignment`. Not for rank_major, where a row's place says it.
  std::int32_t* output_sources = nullptr;
  // rank_major: [ranks]: how many tokens came from each, so which rows of the following have a meaning; optional in the
  // other layouts.
  std::int32_t* source_tokens = nullptr;
  // [ranks], or null: how many nanoseconds this dispatch, or its wait, waited for each source to begin it, 0 for this
  // rank itself. A source that has been waited for while an earlier one was, on CPU ranks in turn, has the time of
  // both.
  std::uint64_t* source_wait_ns = nullptr;
  std::int32_t* output_ids = nullptr;  // rank_major: [rows, top_k]: local number of the expert; −1: lives elsewhere
  float* output_weights = nullptr;  // rank_major, where the exchange is weighted: [rows, top_k]; 0 where the id is −1

  Stream stream = nullptr;
  std::uint32_t tag = 0;
  bool discard = false;  // the generation taken may still wait for its combine, which will not be called
  Launch launch = {};
};

struct CombineArgs {
  Ticket ticket = {};
  // [Exchange::output_rows(), hidden] of combine_type, rows where dispatch put them. rank_major: what the experts of
  // this rank made of a token together; rows of tokens that have no expert here are not read.
  const void* input = nullptr;
  const void* residual = nullptr;  // [tokens, hidden], added last; or null
  // [tokens, hidden]; tokens without an expert become 0 (or the residual). Of a rank without tokens, neither is looked
  // at.
  void* output = nullptr;
  std::uint64_t* source_wait_ns = nullptr;  // [ranks], or null: as in DispatchArgs, of this combine
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
};

// Bytes that an exchange takes on each rank. docs/moe.md has the formula.
struct ExchangeMemory {
  std::size_t dispatch = 0;  // receive buffers of dispatch, of one generation on the wire; there are two
  std::size_t combine = 0;   // of combine, likewise
  std::size_t tables = 0;    // routing that combine needs, of all generations
  std::size_t window = 0;    // all of it: what the device gives up, besides 20 KiB of control memory that last
  std::size_t output = 0;    // of the caller: dispatch's rows and scales, and rank_major's ids and weights
};
// Of groups that make exchanges at once, and different ones, every rank's window is as large as the largest.
ExchangeMemory exchange_memory(int ranks, const ExchangeArgs& args);

// Dispatch and combine among the ranks of a group, with memory of its own.
//
// A rank sends the routing of its tokens to every rank, and each token once to every rank that holds one of its
// experts. Rows of an expert come in (source rank, token) order, the same on every run: who receives computes their
// places from the routing. In combine a rank adds up, in f32 and by ascending expert, what its experts made of a token
// (the first as w · y, the rest by fmaf), rounds once to combine_type, and returns one row; the token's owner adds the
// rows in rank order, then the residual, and rounds once. What is beyond combine_type's range is infinite, and NaN is
// the one that sums have (ReduceOp::sum). So without weights the row of a token with one expert comes back bit for bit,
// −0 and subnormals included, but for the bits of a NaN.
//
// Dispatch and combine are two sequences of calls, each with the rules of a group's calls (see Group and all_reduce).
// They may run beside each other, on two streams, if dispatch and combine of one ticket are ordered, and a dispatch
// behind the combine whose generation it takes, `generations` dispatches ago; their blocks must then fit on the GPU
// together, for which Launch::blocks is there. The calls of one sequence come from one thread at a time, and the two
// may have a thread each. Faults are the communicator's.
//
// A captured call has what it was captured with: pointers, `tokens`, the generation, `discard`, the grid. What pointers
// lead to is read anew in every replay: rows, ids, weights. Ranks need not have captured the same `tokens`. For fewer
// than it was captured with, ids of the others are −1: nothing of them travels but that.
//
// The algorithm: routing that goes to every rank, and a row per rank rather than per expert, are NCCL EP's (arXiv
// 2603.13606); the masked layout, scales per 128 columns, and sends and waits apart are those of DeepEP's low-latency
// mode.
class Exchange {
 public:
  // Collective over the whole communicator, like split(): ranks of several groups make the exchanges of all groups at
  // once. Memory is taken until free(), or until the communicator is destroyed; release() and acquire() include it.
  // There is room for (63 − Config::max_groups) / 2 exchanges at a time.
  // A rank that rejects throws Errc::invalid_argument (Errc::unsupported where ranks do not reach each other's memory,
  // Errc::released), and the others the same or Errc::rendezvous with its reason; where ranks of the group differ, all
  // of them throw Errc::invalid_argument.
  static Exchange create(const Group& group, const ExchangeArgs& args);

  // Gives the exchange's memory back on all ranks, and its place among the exchanges. Collective like create(): every
  // rank frees the exchange that it made in the same create(). Calls that are on the GPU's queues are finished first,
  // as Communicator::release() does it, Errc::timeout included; none may come while it runs. What has been sent or
  // dispatched, and no more than that, is void. From then on every call on this exchange, by whichever handle, is
  // rejected with Errc::released, and graphs and recordings that hold one end with that code in status(), as those do
  // that a release() finds: they store nothing, but a dispatch on GPUs may read its input, ids and weights, which must
  // still be there; so destroy or capture anew. Where handles go without it, the memory stays. Errc::released on all
  // ranks where one names one that has been freed, or while the communicator's memory is released;
  // Errc::invalid_argument where ranks free different ones; Errc::rendezvous where a rank does not call. Then nothing
  // has happened: the exchange goes on.
  void free();

  const ExchangeArgs& args() const;
  std::uint32_t local_experts() const;
  // Global numbers of this rank's experts, in the order of the output.
  std::span<const std::uint32_t> experts() const;
  std::uint32_t capacity() const;   // rows of one expert; expert_contiguous: of all; rank_major: of one rank
  std::size_t output_rows() const;  // of dispatch's output and combine's input

  // Takes the next generation. Errc::in_flight when that one still waits for its combine: a fault, which ends the
  // communicator, as it is found when the call runs. A combine that has begun is not found: who orders nothing between
  // the two changes what it reads.
  Ticket dispatch(const DispatchArgs& args) const;
  // All ranks combine what they dispatched in the same call: where they do not, sums are of other tokens, or the call
  // ends with Errc::timeout; a `tag` of each micro-batch, the same in both calls' args on all ranks, makes it
  // Errc::mismatch. May be called again with the same ticket until a dispatch takes its generation. From then on the
  // ticket is Errc::invalid_argument, and so it is after a release(); but what graphs hold is made in an order that the
  // host does not see, so not where its dispatch, the later one or this call is captured: a combine then finds whatever
  // its generation has.
  void combine(const CombineArgs& args) const;

  // The same calls in two launches, each with a grid of its own (Launch::blocks, as many SMs at most): the send waits
  // for nobody, and what is enqueued between it and the wait runs while rows travel. The send looks at what goes in and
  // at the tag, the wait at what comes out and at the residual; a send reads its tensors until its launch has ended, no
  // longer. Sends and waits of dispatch take turns, and so do those of combine; between the two halves of one may come
  // any call of the other.
  // Order the wait behind the send by its stream or an event. CPU ranks make each half in the calling thread.
  // Errc::in_flight for a send (or a joined call) before the wait for the one before; Errc::invalid_argument for a wait
  // to which nothing was sent, or something else than `ticket`, and for a combine whose dispatch was not waited for:
  // rejected, and nothing has happened. Graphs that are replayed out of turn end with Errc::overlap. What a release()
  // finds sent is void.
  Ticket dispatch_send(const DispatchArgs& args) const;
  void dispatch_wait(Ticket ticket, const DispatchArgs& args) const;
  void combine_send(const CombineArgs& args) const;
  void combine_wait(const CombineArgs& args) const;

 private:
  explicit Exchange(Group group, std::shared_ptr<detail::ExchangeState> state)
      : group_(std::move(group)), state_(std::move(state)) {}
  Group group_;
  std::shared_ptr<detail::ExchangeState> state_;
};

}  // namespace weft
