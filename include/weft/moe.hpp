// Mixture of experts: tokens travel to the ranks that hold their experts, and their results come back.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "weft/communicator.hpp"
#include "weft/launch.hpp"
#include "weft/moe_exchange.hpp"
#include "weft/types.hpp"

namespace weft {

namespace detail {
class ExchangeState;
}  // namespace detail

// A division of each rank's experts into rounds, in the order of the output. Experts of one round are computed while
// rows of the next one travel. A call whose ranks divide differently ends with Errc::mismatch.
struct ExpertRounds {
  std::uint32_t count = 1;  // 1 … 16; several ask for weights at dispatch, and by a ring for `ring_rows` tokens at most
  // [count]: a round's experts; 0 is allowed. Together they are as many as that rank has which has most. A rank with
  // fewer experts has the first of them: so its last rounds are shorter, or empty. Null: as even as possible, larger
  // rounds first.
  const std::uint32_t* experts = nullptr;
};

// Names a dispatch to its combine. Pass it on unchanged.
struct DispatchHandle {
  std::uint32_t slot = 0;         // of the exchange's handles, in turn
  std::uint64_t exchange = 0;     // of all that the communicator ever made, from 1
  std::uint64_t number = 0;       // of the dispatch, from 1; 0: it was captured, and may be made many times
  std::uint32_t tokens = 0;       // of this rank
  std::uint32_t most_tokens = 0;  // as in DispatchArgs

  bool operator==(const DispatchHandle&) const = default;
};

// A word of DispatchArgs::host_counts, which the host may read while the dispatch runs. No call has to wait for it.
//
// A dispatch, or its wait, writes each word once. It does so as soon as the count is known: before rows end, in any
// order. Count and stamp are one word, so a reader needs no fence. All words of a dispatch have the same stamp. The
// next dispatch of the exchange has another one, also if both are replays of one graph. Stamps are odd, so zeroed words
// have none, and they come again after 2^31 dispatches. The host notes the stamp before a dispatch, and polls:
//
//   const std::uint32_t before = read_host_count(words).stamp;
//   exchange.dispatch(args);  // or a replay
//   for (std::size_t i = 0; i < size; ++i)
//     while ((got[i] = read_host_count(words + i)).stamp == before) communicator.check();
//
// Read all words before the next dispatch that writes them, or give each dispatch its own. Nothing else is ordered with
// a word: rows and the counts on the device are complete when the call has ended. A dispatch that fails may leave any
// of the words as they were, so a host that polls looks at Group::check().
struct HostCount {
  std::uint32_t count = 0;
  std::uint32_t stamp = 0;  // 0: no dispatch has written the word

  bool operator==(const HostCount&) const = default;
};
inline HostCount read_host_count(std::uint64_t* word) {
  const std::uint64_t bits = std::atomic_ref(*word).load(std::memory_order_relaxed);
  return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
}

// Tensors are dense. Rows begin at a multiple of 16 bytes, scales and payloads at a multiple of 4, everything else at a
// multiple of the element's size. No tensor of a call overlaps another one, except that combine's output may be its
// residual. Tensors are the caller's and must stay until the call has run; Weft keeps none of them.
struct DispatchArgs {
  const void* input = nullptr;   // [tokens, hidden]
  const void* scales = nullptr;  // [tokens, scale_bytes], if the exchange has scale_bytes
  // [tokens, payload_bytes[i]] each, and null behind the last one that the exchange has.
  std::array<const void*, kMostPayloads> payloads = {};
  const void* topk_ids = nullptr;  // [tokens, top_k] i32, or i64; an id outside 0 … experts − 1 stands for none
  bool topk_ids_are_i64 = false;
  const float* topk_weights = nullptr;  // [tokens, top_k], if the exchange is weighted; ignored if combine takes them
  // Instead of topk_ids, rows by rank: [tokens, ranks] bytes. A token goes to each rank whose byte is not 0. Only for
  // an exchange of as many experts as ranks, expert r on rank r, and of as large a top_k. An exchange of
  // expert_contiguous then puts a rank's rows one behind the other, in (source rank, token) order.
  const std::uint8_t* rank_mask = nullptr;
  // With rank_mask: [tokens, ranks]. Dispatch, or its send, writes the ids that follow, r or −1, before it reads them.
  // No tensor of the call overlaps them.
  std::int32_t* mask_ids = nullptr;
  std::uint32_t tokens = 0;  // of this rank, 0 … MoeExchangeArgs::tokens; ranks may differ
  // The most tokens that a rank has in this call: every rank gives the same number, and none has more. A call whose
  // ranks differ ends with Errc::mismatch. Up to MoeExchangeArgs::slot_tokens, rows of an exchange with a ring take
  // slots, here and in the combine. The blocks that Weft chooses are for rows of so many tokens from each rank. 0: not
  // known, so rows take the ring, and blocks are for MoeExchangeArgs::tokens. Engines know it: they pad batches to the
  // size of a captured graph.
  std::uint32_t most_tokens = 0;
  // The map of experts that the dispatch, or its send, follows: 0 … MoeExchangeArgs::maps − 1.
  // A call whose ranks differ ends with Errc::mismatch.
  std::uint32_t map = 0;

  // Outputs, on the device, of MoeExchange::output_rows() rows. Rows that no token takes are not written.
  void* output = nullptr;  // [rows, hidden]
  // If rows have scales: in the order of `scale_order`, f32, or bytes with fp8_ue8m0; or [rows, scale_bytes] as they
  // came. A GEMM that reads columns by TMA needs them to begin at a multiple of 16 bytes.
  void* output_scales = nullptr;
  std::array<void*, kMostPayloads> output_payloads = {};  // [rows, payload_bytes[i]] each, as they came
  // [local experts]: entries that came for each, entries without room included.
  std::int32_t* counts = nullptr;
  // [local experts + 1], expert_contiguous: the row at which each expert begins; last, the row at which the next would
  // begin. As far as there is room they are places in the output.
  std::int32_t* offsets = nullptr;
  // [rows], or null: the token of each row, as source rank · MoeExchangeArgs::tokens + token; −1 between an expert's
  // rows and the next multiple of `alignment`. Not for rank_major: a row's place gives its token.
  std::int32_t* output_sources = nullptr;
  // rank_compact: [ranks, ranks]. Row i, column j: the rows that sources 0 … i have for rank j, with and without room.
  // So this rank's rows of source i end at the number in row i of its own column.
  std::int32_t* rank_prefix = nullptr;
  // rank_major: [ranks]: how many tokens each source has in this call, with and without an expert here. Only these rows
  // of the outputs below have a meaning. Optional in the other layouts.
  std::int32_t* source_tokens = nullptr;
  // [ranks], or null: nanoseconds that this dispatch, or its wait, waited for each source to begin it; 0 for this rank
  // itself. CPU ranks wait for sources in turn, so a source's time includes the waits for earlier sources.
  std::uint64_t* source_wait_ns = nullptr;
  // [local experts + ranks], or null: the rows that came for each expert, as in `counts`, then the tokens that each
  // source has, as in `source_tokens`. So nothing says how many rows of an expert are of one source: `output_sources`
  // does, on the device. Every layout has them; rank_compact [local experts + 2 · ranks], the last of them the rows
  // that each source has for this rank. Read them by read_host_count(). On GPUs they are pinned host memory, at the
  // address that the GPU uses too (cudaHostAlloc, cudaMallocHost); on CPU ranks any memory. Zero them before an
  // exchange's first dispatch with them, as stamps of two exchanges may be equal.
  std::uint64_t* host_counts = nullptr;
  std::int32_t* output_ids = nullptr;  // rank_major, rank_compact: [rows, top_k]: local expert; −1: lives elsewhere
  float* output_weights = nullptr;     // the same, if the exchange is weighted: [rows, top_k]; 0 if the id is −1

  Stream stream = nullptr;
  std::uint32_t tag = 0;
  bool discard = false;  // the handle slot taken may still wait for its combine, which is then never called
  Launch launch = {};
  ExpertRounds rounds = {};  // of the dispatch, or of its send; its waits have the same. rank_compact: one
  std::uint32_t round = 0;   // of this wait: 0, then 1 …; ignored by the others
  // The handle of an earlier dispatch, if its routing serves this one, too. The exchange is `repeatable`. Rows come at
  // the places of that dispatch, in its order; `tokens` and `most_tokens` are its own. Ids, weights and the mask are
  // ignored, and `output`, `output_scales`, `output_payloads` and `source_wait_ns` are the only outputs. All others
  // still hold. So does the handle, which this call returns: the call takes its handle slot, and not the next one.
  // `host_counts` is null, and `map` is 0. A wait ignores this: it knows how its send was made. A replay takes whatever
  // routing its handle slot has. If that is of another dispatch than a peer's, or of another number of tokens, it ends
  // with Errc::mismatch.
  DispatchHandle again = {};
};

struct CombineArgs {
  DispatchHandle handle = {};
  // [MoeExchange::output_rows(), hidden] of combine_type, rows at the places of dispatch. rank_major, rank_compact: the
  // sum of what this rank's experts made of a token. Rows of tokens that have no expert here are not read.
  const void* input = nullptr;
  // [tokens, top_k], as in DispatchArgs, if the exchange has weights_at_combine; otherwise null. Read by the send.
  const float* topk_weights = nullptr;
  const void* residual = nullptr;  // [tokens, hidden], added last; or null
  // [tokens, hidden]; may be `residual`. Tokens without an expert become 0 (or the residual). On a rank without tokens,
  // `residual` and `output` are ignored.
  void* output = nullptr;
  std::uint64_t* source_wait_ns = nullptr;  // [ranks], or null: as in DispatchArgs, of this combine
  Stream stream = nullptr;
  std::uint32_t tag = 0;
  Launch launch = {};
  ExpertRounds rounds = {};  // of the combine, or of its sends; they need not be those of the dispatch
  std::uint32_t round = 0;   // of this send: 0, then 1 …; ignored by the others
};

// Dispatch and combine among the ranks of a group, with memory of its own.
//
// A rank sends the routing of its tokens to every rank, and each token once to every rank that holds one of its
// experts. Rows of an expert come in (source rank, token) order, the same on every run: receivers compute their places
// from the routing. In combine a rank adds up its experts' rows of a token, in f32 and by ascending local expert: the
// first as w · y, the rest by fmaf. It rounds once to combine_type, and returns one row. The token's owner adds the
// rows in rank order, then the residual, and rounds once. Values beyond combine_type's range become infinite, and NaN
// is the one that sums have (ReduceOp::sum). So without weights the row of a token with one expert comes back bit for
// bit, −0 and subnormals included. Only the bits of a NaN may change.
//
// Dispatch and combine are two sequences of calls, each with the rules of a group's calls (see Group and all_reduce).
// They may run beside each other, on two streams, if two orders hold: a handle's dispatch before its combine, and a
// combine before the dispatch that takes its handle slot: the one `handles` dispatches later, or one that is made again
// with this handle and does not count among them. Their blocks must then fit on the GPU together; limit them with
// Launch::blocks. The calls of one sequence come from one thread at a time, and the two sequences may have a thread
// each. Faults are the communicator's.
//
// A captured call keeps the arguments of its capture: pointers, `tokens`, `most_tokens`, `map`, the handle slot,
// `discard`, the grid. Every replay reads the memory behind the pointers anew: rows, ids, weights. Ranks need not have
// captured the same `tokens`, but the same `most_tokens`. To replay with fewer tokens, set the ids of the others to −1.
// Only ids and weights of those tokens travel.
//
// The algorithm: routing that goes to every rank, and a row per rank rather than per expert, are NCCL EP's (arXiv
// 2603.13606). The masked layout, scales per 128 columns, and separate sends and waits are those of DeepEP's
// low-latency mode.
class MoeExchange {
 public:
  // Collective over the whole communicator, like split(): ranks of several groups make the exchanges of all groups at
  // once. Memory is taken until free(), or until the communicator is destroyed; release() and acquire() include it.
  // There is room for (63 − Config::max_groups) / 2 exchanges at a time. A rank that rejects throws
  // Errc::invalid_argument (Errc::released, or Errc::unsupported if ranks do not reach each other's memory). The others
  // throw the same or Errc::rendezvous with its reason. If ranks of the group differ, all of them throw
  // Errc::invalid_argument.
  static MoeExchange create(const Group& group, const MoeExchangeArgs& args);

  // Gives the exchange's memory back on all ranks, and its place among the exchanges. Collective like create(): every
  // rank frees the exchange that it made in the same create(). Calls on the GPU's queues are finished first, as in
  // Communicator::release(), Errc::timeout included; no call may come while it runs. Sends without a wait, and
  // dispatches without a combine, are void. From then on every call on this exchange, by any copy, is rejected with
  // Errc::released. Graphs and recordings that hold such a call end with that code in status(), as after a release().
  // They store nothing, but a call on GPUs may read its input, ids and weights, which must still be there. So
  // destroy or capture anew. Errc::released on all ranks: one names an exchange that has been freed, or the
  // communicator's memory is released. Errc::invalid_argument: ranks free different ones. Errc::rendezvous: a rank does
  // not call. After these errors nothing has happened, and the exchange goes on.
  //
  // No destructor calls it. All ranks must meet for it, and the last copies of an exchange go at other times on each
  // rank. Without free() the memory stays until the communicator is destroyed.
  void free();

  // Experts move: the maps from `first_map` on become these, [maps, ranks, places] as in
  // MoeExchangeArgs::experts_of_rank, of 1 to all maps. Collective like create(), by ranks that have made the same
  // dispatches before: it is one of the sequence of dispatches. Dispatches behind it in the order of `stream` take the
  // new maps. Graphs that were captured, and recordings that were made before, do so, too: a map keeps its address.
  // Order dispatches on other streams by events. CPU ranks have the new maps when it returns.
  //
  // Handles in flight stay valid: a wait of either half, a combine and all rounds belong to the map of their dispatch.
  // So does a dispatch that is made again (DispatchArgs::again). So an expert's weights stay at its old place until the
  // last dispatch by the old map has been computed. They are at the new one before the first dispatch behind. Layouts,
  // sizes and capacity do not change.
  //
  // After these errors the old maps are in force on all ranks. Errc::invalid_argument: the exchange was made without
  // experts_of_rank, a number is out of range, an expert has no place, or the call is recorded or captured.
  // Errc::released: the exchange was freed, or the communicator's memory is released. A rank that rejects throws its
  // own error, the others Errc::rendezvous with its reason. Errc::mismatch on all ranks: they give different maps, or
  // mean different exchanges. If a GPU's copy fails, ranks may have different maps: use the exchange no more.
  void set_experts(std::span<const std::int32_t> experts_of_rank, std::uint32_t first_map = 0, Stream stream = nullptr);

  const MoeExchangeArgs& args() const;  // experts_of_rank: the maps that the next dispatch would take
  std::uint32_t local_experts() const;  // with empty places
  // Global numbers of this rank's experts, in the order of the output; 2^32 − 1 for an empty place. set_experts()
  // changes them in place. Errc::invalid_argument: there is no such map.
  std::span<const std::uint32_t> experts(std::uint32_t map = 0) const;
  std::uint32_t capacity() const;   // rows of an expert; expert_contiguous, rank_compact: of all; rank_major: of a rank
  std::size_t output_rows() const;  // of dispatch's output and combine's input

  // Takes the next handle slot, or that of DispatchArgs::again. Errc::in_flight if this handle slot still waits for its
  // combine: a fault, found when the call runs, which ends the communicator. A combine that has begun is not found: a
  // caller that does not order the two changes what the combine reads.
  DispatchHandle dispatch(const DispatchArgs& args) const;
  // All ranks must combine what they dispatched in the same call. If they do not, sums are of other tokens, or the call
  // ends with Errc::timeout. A `tag` of each micro-batch, the same in both calls' args on all ranks, turns this into
  // Errc::mismatch. May be called again with the same handle until a dispatch takes its handle slot, or until a
  // release(). From then on the handle is Errc::invalid_argument. The host does not see the order of graphs: if its
  // dispatch, the later dispatch or this call is captured, nothing is rejected, and a combine finds whatever its
  // handle slot has. If that dispatch took the ring, and this combine takes slots, or the other way round, it may read
  // rows that are not there.
  void combine(const CombineArgs& args) const;

  // The same calls in two launches, each with its own grid (Launch::blocks, as many SMs at most). The send waits for no
  // rank; work enqueued between it and the wait runs while rows travel. The send uses the inputs and the tag, the wait
  // uses the outputs and the residual. A send reads its tensors until its launch has ended, no longer. Sends and waits
  // of dispatch take turns, and so do sends and waits of combine. Between the two halves of one may come any call of
  // the other. Order the wait behind the send by its stream or an event. CPU ranks make each half in the calling
  // thread.
  //
  // Nobody reads rows between a send and its wait. So by a ring a half of more tokens than `ring_rows` is
  // Errc::invalid_argument, and only the joined call serves them. Another rank may make that call: it ends once all
  // waits have begun. So if the exchange is for more tokens than `ring_rows`, a combine's wait by the ring reads
  // `input`, too.
  //
  // With weights_at_combine the send reads the weights alone, and the wait adds up: so it reads `input`, and rows
  // travel behind it. Every rank's combine, or its wait, then ends once the waits of all ranks have begun. A rank must
  // not put a call that waits for a peer between its two halves, unless that peer puts it there, too.
  //
  // Rejected, and nothing has happened: Errc::in_flight for a send (or a joined call) before the wait for the one
  // before. Errc::invalid_argument for a wait to which nothing, or something else than `handle`, was sent, and for a
  // combine whose dispatch was not waited for. Graphs that are replayed out of turn end with Errc::overlap. A release()
  // voids sends that were not waited for.
  //
  // Rounds (DispatchArgs::rounds, CombineArgs::rounds). A dispatch in rounds has one send and a wait for each round, in
  // ascending order; a combine has a send for each round and one wait:
  //
  //   handle = dispatch_send(args)
  //   for each round r: dispatch_wait(handle, args with round r), the experts of round r, combine_send(round r)
  //   combine_wait(args)
  //
  // Behind the wait of round r all rows of experts of the rounds 0 … r are there, with scales and payloads; later rows
  // may be. Other outputs are complete behind the first wait: counts, offsets, sources, ids. Combine's send of round r
  // reads the rows of experts of the rounds 0 … r. Three parts may run at once, on three streams: a wait of one round,
  // the experts of an earlier one, and the combine's send of a still earlier one. Order each behind what it reads.
  //
  // Rounds send nothing twice: a row travels in the first round that needs it on its rank, and a sum returns in the
  // last round that touches it. So the bytes on the wire, and the bits of all results, are those of one round. Routing
  // and counts travel ahead of all rows. A joined call may have rounds, too: it sends in their order, and its peers may
  // take the calls apart.
  //
  // Rejected are a round out of turn, and a combine's send whose experts the waits so far have not brought. The idea of
  // rounds is DeepEP's pull request 492 (per-expert overlap), which sends a row again in every round that needs it.
  DispatchHandle dispatch_send(const DispatchArgs& args) const;
  void dispatch_wait(DispatchHandle handle, const DispatchArgs& args) const;
  void combine_send(const CombineArgs& args) const;
  void combine_wait(const CombineArgs& args) const;

  // Group::refuse for a dispatch, or for a combine.
  void refuse_dispatch(std::string_view reason, Stream stream = nullptr) const noexcept;
  void refuse_combine(std::string_view reason, Stream stream = nullptr) const noexcept;

 private:
  friend class MoeLayer;
  explicit MoeExchange(Group group, std::shared_ptr<detail::ExchangeState> state)
      : group_(std::move(group)), state_(std::move(state)) {}
  Group group_;
  std::shared_ptr<detail::ExchangeState> state_;
};

}  // namespace weft
