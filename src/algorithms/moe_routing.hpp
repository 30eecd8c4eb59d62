// What dispatch and combine share: work dealt to warps, experts' homes, and the words and lines that carry routing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "algorithms/handshake.hpp"
#include "core/exchange.hpp"
#include "core/session.hpp"
#include "core/tensor.hpp"
#include "wire/line.hpp"

namespace weft::detail {

// A user's row, of any type, by packs of 16 bytes.
using Packs = Tensor<std::uint32_t, 4, true>;
// The same where the last pack may be cut.
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

// Arguments of a kernel come through a cache that is cold when it starts: here while the kernel before still runs, not
// one line after the other where they are first needed.
template <Team T, class Argument>
WEFT_FN void read_ahead(T& team, const Argument& argument) {
  constexpr std::size_t kLine = 64;
  WEFT_UNROLL
  for (std::size_t offset = 0; offset + sizeof(std::uint64_t) <= sizeof(Argument); offset += kLine) {
    std::uint64_t word = 0;
    std::memcpy(&word, reinterpret_cast<const std::byte*>(&argument) + offset, sizeof(word));
    team.settle(word);
  }
}

// What both kernels are to an executor: any number of ranks, two phases, work dealt to the warps of the data blocks.
template <class Work_>
struct MoeFrame : LoadsNothingEarly {
  using Work = Work_;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;
  using Handshake = detail::Handshake<0>;

  static WEFT_FN Part part(const Work& work) { return work.part; }

  struct Places {
    HeaderPlace header;  // in the control block
    WarpShare share;     // elsewhere
    const Work* work;
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{};
    p.work = &work;
    read_ahead(team, call);
    read_ahead(team, work);
    if (team.block_rank() == 0) {
      p.header = Handshake::place(team, call);
    } else {
      p.share = warp_share(team);
    }
    return p;
  }
};

// Warps that share each of `rows` rows, of which a warp handles kLanes items at once: as many as there are for it, and
// no more than it has work for. One thread that is a warp by itself handles rows whole.
template <class T>
WEFT_FN constexpr std::uint32_t row_sharers(std::uint32_t items, std::uint32_t rows, std::uint32_t warps) {
  if (T::kLanes == 1) return 1;
  const std::uint32_t most = (items + T::kLanes - 1) / T::kLanes;
  const std::uint32_t there = rows != 0 ? (warps + rows - 1) / rows : most;
  return there < most ? there : most;
}

// Units into which a row of `items` lanes' work is cut, one for a warp.
template <class T>
WEFT_FN constexpr std::uint32_t units_of(std::uint32_t items) {
  return row_sharers<T>(items, 1, ~0u);
}

// A small array whose elements are dealt to the lanes of a warp, so that each is computed once.
template <Team T, std::uint32_t most>
struct Dealt {
  static constexpr std::uint32_t kOwn = (most + T::kLanes - 1) / T::kLanes;
  std::uint32_t own[kOwn];

  // Calls `element(i, own)` for the elements below `count` that are this lane's.
  template <class Element>
  WEFT_FN void each(std::uint32_t lane, std::uint32_t count, Element element) {
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kOwn; ++j) {
      if (j * T::kLanes + lane < count) element(j * T::kLanes + lane, own[j]);
    }
  }
  // In all lanes at once.
  WEFT_FN std::uint32_t get(T& team, std::uint32_t i) const {
    if constexpr (T::kLanes == 1) return own[i];
    std::uint32_t value = 0;
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < kOwn; ++j) {
      if (i / T::kLanes == j) value = team.from_lane(own[j], i % T::kLanes);
    }
    return value;
  }
};

WEFT_FN ExpertHome home_of(const ExchangeView& exchange, std::uint32_t replica) {
  const std::uint32_t even = exchange.shape.even;
  return even != 0 ? ExpertHome{replica / even, replica % even} : exchange.homes[replica];
}

// The replicas that serve the entries of one rank's tokens; kNone for an id that names no expert. Where no expert has
// several, replicas are experts.
struct TopK {
  const void* ids;
  const ExchangeView* exchange;
  std::uint32_t rank;
  bool wide;

  static WEFT_FN TopK of(const DispatchWork& work, std::uint32_t rank) {
    return {work.ids, &work.exchange, rank, work.wide_ids};
  }

  WEFT_FN std::uint32_t at(std::uint32_t i) const {
    const std::uint64_t id =
        wide ? static_cast<const std::uint64_t*>(ids)[i] : static_cast<const std::uint32_t*>(ids)[i];
    if (id >= exchange->shape.experts) return kNone;
    if (exchange->first_replica == nullptr) return static_cast<std::uint32_t>(id);
    const std::uint32_t first = exchange->first_replica[id], count = exchange->first_replica[id + 1] - first;
    return first + (rank + i / exchange->shape.top_k) % count;
  }
  // How many of the entries first, first + step, … below `end` are served by `replica`.
  WEFT_FN std::uint32_t count(std::uint32_t replica, std::uint32_t first, std::uint32_t step, std::uint32_t end) const {
    std::uint32_t found = 0;
    for (std::uint32_t i = first; i < end; i += step) found += at(i) == replica ? 1 : 0;
    return found;
  }
};

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

// One entry of a token's top-k as every rank gets it.
struct RoutingRecord {
  static constexpr std::uint32_t kOrdinalBits = 20;
  std::uint32_t place;  // local expert, ordinal among the entries of the sender for this expert; kNone: not here
  float weight;

  static WEFT_FN std::uint32_t make_place(std::uint32_t local, std::uint32_t ordinal) {
    return local << kOrdinalBits | ordinal;
  }
  static WEFT_FN std::uint32_t local(std::uint32_t place) { return place >> kOrdinalBits; }
  static WEFT_FN std::uint32_t ordinal(std::uint32_t place) { return place & ((1u << kOrdinalBits) - 1); }
};
static_assert(kMaxExperts <= 1u << (32 - RoutingRecord::kOrdinalBits));
static_assert(kMaxExchangeTokens * kMaxTopK < 1u << RoutingRecord::kOrdinalBits);

// Addresses in the window of `owner`, of what `sender` writes there in this call.
struct DispatchArea {
  std::byte* region;
  const ExchangeView* exchange;
  std::uint32_t slot;  // bank and sender

  static WEFT_FN DispatchArea of(const Session& s, const ExchangeView& exchange, std::uint32_t owner,
                                 std::uint32_t sender) {
    return {region_of(*s.call, owner), &exchange, s.epoch % kBanks * s.size() + sender};
  }
  WEFT_FN std::uint64_t* counts() const {
    return reinterpret_cast<std::uint64_t*>(region + exchange->layout.counts) +
           std::uint64_t{slot} * (exchange->shape.most_local + 1);
  }
  WEFT_FN std::uint64_t* tokens() const { return counts() + exchange->shape.most_local; }
  WEFT_FN Pack* records(std::uint32_t token) const {
    return reinterpret_cast<Pack*>(region + exchange->layout.records) +
           (std::uint64_t{slot} * exchange->shape.tokens + token) * exchange->shape.top_k;
  }
  WEFT_FN Pack* row(std::uint32_t token) const {
    return reinterpret_cast<Pack*>(region + exchange->layout.rows) +
           (std::uint64_t{slot} * exchange->shape.tokens + token) * exchange->shape.row_packs;
  }
};

}  // namespace weft::detail
