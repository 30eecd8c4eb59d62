// Common parts of dispatch and combine: work dealt to warps, experts' homes, and the words and lines that carry
// routing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "numeric/tensor.hpp"
#include "ops/moe/exchange.hpp"
#include "protocol/handshake.hpp"
#include "protocol/session.hpp"
#include "wire/line.hpp"

namespace weft::detail {

// A user's row, of any type, by packs of 16 bytes.
using Packs = Tensor<std::uint32_t, 4, true>;
// The same if the last pack may be cut.
using RaggedPacks = Tensor<std::uint32_t, 4, false>;

// The units of work of one warp of the data blocks: first, first + step, …
struct WarpShare {
  std::uint32_t first, step, lane;
};
template <Team T>
WEFT_FN WarpShare warp_share(T& team) {
  const std::uint32_t warps = team.size() / T::kLanes;
  return {.first = (team.block_rank() - 1) * warps + team.thread_rank() / T::kLanes,
          .step = (team.blocks() - 1) * warps,
          .lane = team.thread_rank() % T::kLanes};
}

// The same if only `warps` warps of each block from `begin` on have units. Neighbouring units go to different blocks.
template <Team T>
WEFT_FN WarpShare share_among(T& team, std::uint32_t begin, std::uint32_t warps) {
  const std::uint32_t blocks = team.blocks() - 1, warp = team.thread_rank() / T::kLanes - begin;
  return {.first = warp < warps ? warp * blocks + team.block_rank() - 1 : kNone,
          .step = warps * blocks,
          .lane = team.thread_rank() % T::kLanes};
}
// Warps of each block that only send: `wanted`, if others are left.
template <Team T>
WEFT_FN std::uint32_t senders_of(T& team, std::uint32_t wanted) {
  return wanted < team.size() / T::kLanes ? wanted : 0;
}

// Arguments of a kernel come through a cache that is cold at its start. All lines are read here, while the kernel
// before still runs, not one after the other at their first use.
template <std::size_t bytes, Team T, class Argument>
WEFT_FN void read_ahead(T& team, const Argument& argument) {
  constexpr std::size_t kLine = 64;
  WEFT_UNROLL
  for (std::size_t offset = 0; offset + sizeof(std::uint64_t) <= bytes; offset += kLine) {
    std::uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&argument) + offset, sizeof(word));
    team.settle(word);
  }
}

// The executor's view of both kernels: any number of ranks, two phases, work dealt to the warps of the data blocks.
template <class Work_>
struct MoeFrame : PrefetchesNothing {
  using Work = Work_;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;
  using Handshake = detail::Handshake<0>;

  static WEFT_FN Phases phases(const Work& work) { return work.phases; }
  // False in a launch that only loads the kernel, on a group that has ended (kernel/cuda_executor.cpp).
  static WEFT_FN bool is_there(const Work& work) { return work.exchange.tables.header != nullptr; }

  struct ThreadPlan {
    HeaderAddress header;  // in the control block
    WarpShare share;       // in the other blocks
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{};
    read_ahead<sizeof(Call)>(team, call);
    read_ahead<offsetof(Work, rounds)>(team, work);
    if (team.block_rank() == 0) {
      p.header = Handshake::address(team, call);
    } else {
      p.share = warp_share(team);
    }
    return p;
  }

  // By the control block: Handshake::compare, and the time waited for each peer's header, if the caller asks.
  template <Team T>
  static WEFT_FN bool compare(T& team, const Session& s, const HeaderAddress& header, std::uint64_t* source_wait_ns) {
    const std::uint64_t began = source_wait_ns != nullptr ? team.now() : 0;
    const auto seen = [&](std::uint32_t peer) {
      if (source_wait_ns != nullptr) source_wait_ns[peer] = team.now() - began;
    };
    if (team.thread_rank() == 0 && source_wait_ns != nullptr) source_wait_ns[s.rank()] = 0;
    return Handshake::compare(team, s, header, 1, seen);
  }
};

// Warps that share each of `rows` rows; a warp handles kLanes items at once. As many as there are for all rows at once,
// so that no row waits for another, and no more than have work. A warp of one thread handles rows whole.
template <class T>
WEFT_FN constexpr std::uint32_t row_sharers(std::uint32_t items, std::uint32_t rows, std::uint32_t warps) {
  if (T::kLanes == 1) return 1;
  const std::uint32_t most = (items + T::kLanes - 1) / T::kLanes;
  if (rows * most <= warps) return most;
  return warps > rows ? warps / rows : 1;
}

// Units into which a row of `items` lanes' work is cut, one for a warp.
template <class T>
WEFT_FN constexpr std::uint32_t units_of(std::uint32_t items) {
  return row_sharers<T>(items, 1, ~0u);
}

// A small array whose elements are dealt to the lanes of a warp, so that each is computed once.
template <Team T, std::uint32_t most>
struct LaneArray {
  static constexpr std::uint32_t kOwn = (most + T::kLanes - 1) / T::kLanes;
  std::uint32_t own[kOwn];

  // Calls `element(i, own, j)` for this lane's elements below `count`: own[j]. Use `j` for other arrays that are dealt
  // alike: the compiler knows it, so all of them stay in registers.
  template <class Element>
  WEFT_FN void each(std::uint32_t lane, std::uint32_t count, Element element) {
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kOwn; ++j) {
      if (j * T::kLanes >= count) break;
      if (j * T::kLanes + lane < count) element(j * T::kLanes + lane, own[j], j);
    }
  }
  // Adds to element i, in the lane that has it.
  WEFT_FN void add(std::uint32_t lane, std::uint32_t i, std::uint32_t value) {
    if constexpr (T::kLanes == 1) {
      own[i] += value;
    } else {
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kOwn; ++j) own[j] += j * T::kLanes + lane == i ? value : 0;
    }
  }
  // Call it in all lanes at once.
  WEFT_FN std::uint32_t get(T& team, std::uint32_t i) const {
    if constexpr (T::kLanes == 1) return own[i];
    std::uint32_t value = own[0];
    WEFT_UNROLL
    for (std::uint32_t j = 1; j < kOwn; ++j) value = i >= j * T::kLanes ? own[j] : value;
    return team.from_lane(value, i % T::kLanes);
  }
};

WEFT_FN ExpertHome home_of(const ExchangeView& exchange, std::uint32_t replica) {
  const std::uint32_t even = exchange.shape.even;
  if (even == 0) return exchange.homes[replica];
  const auto rank = static_cast<std::uint32_t>(replica * exchange.shape.per_even >> 32);
  return {rank, replica - rank * even};
}

// Whether rows between a rank and itself stay out of the slots: those that receive take them from the caller's tensor,
// while others send. Only in a launch that does both: between halves the caller may change the tensor.
template <bool tallies>
WEFT_FN bool own_rows_stay(const DispatchWork& work) {
  return tallies && is_joined(work.phases);
}

// The replicas that serve the entries of one rank's tokens; kNone for an id that names no expert. If no expert has
// several, replicas are experts.
struct TopK {
  const void* ids;
  const ExchangeView* exchange;
  std::uint32_t rank;
  bool wide;

  static WEFT_FN TopK of(const DispatchWork& work, std::uint32_t rank) {
    return {work.ids, &work.exchange, rank, work.wide_ids};
  }

  // A given id of 32 or 64 bits. It has two words, so that no load waits for another.
  struct Id {
    std::uint32_t low = kNone, high = 0;
  };
  // The id of entry `i`, or none if `i` is not below `end`.
  WEFT_FN Id id(std::uint32_t i, std::uint32_t end) const {
    Id id;
    const auto* const words = static_cast<const std::uint32_t*>(ids);  // null if there are no tokens
    const std::uint64_t at = wide ? 2 * std::uint64_t{i} : i;
    if (i < end) id.low = words[at];
    if (i < end && wide) id.high = words[at + 1];
    return id;
  }
  // The replica that serves entry `i`; `id` is the entry's id.
  WEFT_FN std::uint32_t replica(const Id& id, std::uint32_t i) const {
    if (id.low >= exchange->shape.experts || id.high != 0) return kNone;
    if (exchange->first_replica == nullptr) return id.low;
    return replica_of(exchange->first_replica + id.low, rank, i, exchange->shape.top_k);
  }
  // The same for entries first, first + step, …, in place. If replicas are experts, ids stay unchanged: an id that
  // names no expert names no replica.
  template <std::uint32_t most>
  WEFT_FN void choose(std::uint32_t first, std::uint32_t step, Id (&id)[most]) const {
    if (exchange->first_replica == nullptr) return;
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < most; ++j) id[j] = {replica(id[j], first + j * step), 0};
  }

 private:
  // Not inlined: few exchanges have replicas, and divisions are many instructions.
  static WEFT_SLOW std::uint32_t replica_of(const std::uint32_t* firsts, std::uint32_t rank, std::uint32_t i,
                                            std::uint32_t top_k) {
    const std::uint32_t first = firsts[0], count = firsts[1] - first;
    return first + (rank + i / top_k) % count;
  }
};

// Ranks that have an expert of a token of this rank. In rounds: a local expert below `end`. `own_id`: of the lane's
// first entry. By a warp.
template <bool in_rounds, Team T>
WEFT_FN RankSet ranks_of(T& team, const Session& s, const DispatchWork& work, std::uint32_t lane, std::uint32_t token,
                         const TopK::Id& own_id, std::uint32_t end) {
  const ExchangeShape& shape = work.exchange.shape;
  const TopK topk = TopK::of(work, s.rank());
  RankSet own{};
  for (std::uint32_t k = lane; k < shape.top_k; k += T::kLanes) {
    const std::uint32_t i = token * shape.top_k + k;
    const std::uint32_t replica = topk.replica(k == lane ? own_id : topk.id(i, i + 1), i);
    if (replica == kNone) continue;
    const ExpertHome home = home_of(work.exchange, replica);
    if (!in_rounds || home.local < end) own.add(home.rank);
  }
  RankSet all{};
  WEFT_UNROLL
  for (std::uint32_t first = 0; first < kMaxRanks; first += 32) {
    if (first < s.size()) all.put(first, team.or_of(own.word(first)));
  }
  return all;
}

// A number that arrives with its flag in one word.
struct FlaggedWord {
  static WEFT_FN std::uint64_t encode(std::uint32_t value, std::uint32_t epoch) {
    return static_cast<std::uint64_t>(value) << 32 | Line::flag(epoch);
  }
  static WEFT_FN bool arrived(std::uint64_t word, std::uint32_t epoch) {
    return static_cast<std::uint32_t>(word) == Line::flag(epoch);
  }
  static WEFT_FN std::uint32_t decode(std::uint64_t word) { return static_cast<std::uint32_t>(word >> 32); }
};

// One entry of a token's top-k in the form that every rank gets.
struct RoutingRecord {
  static constexpr std::uint32_t kOrdinalBits = 20;
  std::uint32_t place;  // local expert, ordinal among the entries of the sender for this expert; kNone: not here
  float weight;         // or the bits of the entry's number among the token's, if dispatch carries no weights

  static WEFT_FN std::uint32_t make_place(std::uint32_t local, std::uint32_t ordinal) {
    return local << kOrdinalBits | ordinal;
  }
  static WEFT_FN std::uint32_t local(std::uint32_t place) { return place >> kOrdinalBits; }
  static WEFT_FN std::uint32_t ordinal(std::uint32_t place) { return place & ((1u << kOrdinalBits) - 1); }
};
static_assert(kMaxExperts <= 1u << (32 - RoutingRecord::kOrdinalBits));
static_assert(kMaxExchangeTokens * kMaxTopK < 1u << RoutingRecord::kOrdinalBits);

// Addresses, in the window of `owner`, that `sender` writes in this call.
struct DispatchArea {
  std::byte* region;
  const ExchangeView* exchange;
  std::uint32_t slot;  // bank and sender

  static WEFT_FN DispatchArea of(const Session& s, const ExchangeView& exchange, std::uint32_t owner,
                                 std::uint32_t sender) {
    return {region_of(*s.call, owner), &exchange, s.epoch % kBanks * s.size() + sender};
  }
  WEFT_FN std::uint64_t* counts() const {
    return reinterpret_cast<std::uint64_t*>(region + exchange->areas.counts) + count_of(*exchange, slot, 0);
  }
  static WEFT_FN std::uint64_t count_of(const ExchangeView& exchange, std::uint32_t slot, std::uint32_t local) {
    return std::uint64_t{slot} * (exchange.shape.most_local + 1) + local;
  }
  // Compact rows: for each rank, how many rows the sender sends it. They lie behind the counts of all.
  WEFT_FN std::uint64_t* row_counts(std::uint32_t ranks) const {
    return reinterpret_cast<std::uint64_t*>(region + exchange->areas.counts) + count_of(*exchange, kBanks * ranks, 0) +
           std::uint64_t{slot} * ranks;
  }
  WEFT_FN std::uint64_t* tokens() const { return counts() + exchange->shape.most_local; }
  WEFT_FN Pack* records(std::uint32_t token) const { return records_among(exchange->shape.tokens, token); }
  // `tokens`: of each sender that have records.
  WEFT_FN Pack* records_among(std::uint32_t tokens, std::uint32_t token) const {
    return reinterpret_cast<Pack*>(region + exchange->areas.records) +
           (std::uint64_t{slot} * tokens + token) * exchange->shape.top_k;
  }
  WEFT_FN Pack* row(std::uint32_t token) const {
    return reinterpret_cast<Pack*>(region + exchange->areas.rows) +
           (std::uint64_t{slot} * exchange->shape.tokens + token) * exchange->shape.row_packs;
  }
};

// Entry `k` of a token of this rank, as its record tells it to every rank.
struct SentRecord {
  std::uint32_t token, k;
  ExpertHome home;  // of rank kNone: no expert's
  std::uint32_t place, told;

  static WEFT_FN SentRecord of(const DispatchWork& work, std::uint32_t token, std::uint32_t k, std::uint32_t replica,
                               std::uint32_t ordinal, std::uint32_t told) {
    const ExpertHome home = replica != kNone ? home_of(work.exchange, replica) : ExpertHome{kNone, 0};
    return {token, k, home, RoutingRecord::make_place(home.local, ordinal), told};
  }
  template <Team T>
  WEFT_FN void send(T& team, const Session& s, const DispatchWork& work, std::uint32_t rank) const {
    Pack* const record = DispatchArea::of(s, work.exchange, rank, s.rank()).records(token) + k;
    const Pack payload{{rank == home.rank ? place : kNone, told, 0, 0}};
    team.store(record, Line::encode<T::kAtomicBytes>(payload, s.epoch));
  }
};

}  // namespace weft::detail
