// Finds the k largest numbers of rows whose columns lie on several ranks. Each rank finds the largest of its own
// columns, and pushes them to every rank, itself included: 8 bytes for each candidate, as lines, which carry their own
// arrival. Every rank merges the lists of all.
//
// A block finds the list of a row, or of a part of one. Its threads look at all columns twice. The first time they only
// note their largest number. A warp whose r-th largest of these is b has r numbers from b on, and r is such that all
// warps together have k. So the least of the warps' bounds is no larger than the k-th largest number. The second time
// few columns reach it, and only these are sorted.
#pragma once

#include <cstdint>

#include "numeric/tensor.hpp"
#include "ops/top_k/largest.hpp"
#include "ops/top_k/top_k_work.hpp"
#include "protocol/handshake.hpp"
#include "protocol/session.hpp"
#include "wire/line.hpp"

namespace weft::detail {

// `most`: of candidates that a row may have.
template <DataType type, std::uint32_t most>
struct PushTopK {
  using Work = TopKWork;
  using Handshake = detail::Handshake<0>;
  using Storage = typename Element<type>::Storage;
  static constexpr std::uint32_t kElements = sizeof(Pack) / sizeof(Storage);
  using Columns = Tensor<Storage, kElements>;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;
  static constexpr int kMostThreads = kTopKThreads;
  static constexpr BeginScope kBeginScope = BeginScope::block;
  static constexpr std::uint32_t kPacksAtOnce = 4;  // of a thread

  struct ThreadPlan {
    HeaderAddress header;  // in the control block, which has no other places
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work&) {
    return {.header = team.block_rank() == 0 ? Handshake::address(team, call) : HeaderAddress{}};
  }

  struct Prefetched {};
  template <Team T>
  static WEFT_FN Prefetched prefetch(T&, const Session&, const Work&, const ThreadPlan&) {
    return {};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, const Prefetched&) {
    if (team.block_rank() == 0) return Handshake::template take_part<phase>(team, s, p.header);
    if constexpr (phase == 0) {
      for (std::uint32_t unit = team.block_rank() - 1; unit < work.rows * work.parts; unit += team.blocks() - 1) {
        send_largest(team, s, work, unit / work.parts, unit % work.parts);
      }
      return true;
    } else {
      return most == 1 ? merge_by_warps(team, s, work) : merge_by_blocks(team, s, work);
    }
  }

 private:
  template <class T>
  using List = Largest<T, most>;

  // ------------------------------------------------------------------------------------------- the largest of a rank

  // A part of a row on this rank.
  struct Part {
    Columns data;
    std::uint32_t first;  // column among all ranks'
    std::uint32_t count;  // columns that are no pads
  };
  static WEFT_FN Part part_of(const Work& work, std::uint32_t row, std::uint32_t part) {
    const auto* const begin = static_cast<const std::byte*>(work.input) + row * work.input_stride;
    const std::uint32_t skipped = part * work.part_columns;
    std::uint32_t count = skipped < work.own_columns ? work.own_columns - skipped : 0;
    if (count > work.part_columns) count = work.part_columns;
    return {Columns(begin + skipped * sizeof(Storage), count), work.first_column + skipped, count};
  }

  // Calls `visit(pack, its number)` for this thread's packs of the part. All threads of a block make as many calls; the
  // packs behind the end are zeros.
  template <Team T, class Visit>
  static WEFT_FN void each_pack_of(T& team, const Part& part, Visit visit) {
    const auto packs = static_cast<std::uint32_t>(part.data.packs());
    for (std::uint32_t first = 0; first < packs; first += kPacksAtOnce * team.size()) {
      Pack in[kPacksAtOnce] = {};
      WEFT_UNROLL
      for (std::uint32_t u = 0; u < kPacksAtOnce; ++u) {
        const std::uint32_t pack = first + u * team.size() + team.thread_rank();
        if (pack < packs) in[u] = part.data.load(pack);
      }
      WEFT_UNROLL
      for (std::uint32_t u = 0; u < kPacksAtOnce; ++u) visit(in[u], first + u * team.size() + team.thread_rank());
    }
  }
  // The order of element `i` of a pack of the part; 0 behind the part's end. No index that is only known at run time,
  // so the pack stays in registers.
  static WEFT_FN std::uint32_t order_in(const Part& part, const Pack& pack, std::uint32_t number, std::uint32_t i) {
    constexpr std::uint32_t kBits = 8 * sizeof(Storage);
    const std::uint32_t at = i * kBits / 32;
    const std::uint32_t word = at < 2 ? (at == 0 ? pack.word[0] : pack.word[1]) : at == 2 ? pack.word[2] : pack.word[3];
    const auto bits = static_cast<Storage>(word >> (i * kBits % 32));
    return number * kElements + i < part.count ? order_of(Element<type>::widen(bits)) : 0;
  }
  static WEFT_FN Candidate candidate_in(const Part& part, const Pack& pack, std::uint32_t number, std::uint32_t i) {
    const std::uint32_t key = order_in(part, pack, number, i);
    return key != 0 ? Candidate::of(key, part.first + number * kElements + i) : Candidate{};
  }

  template <Team T>
  static WEFT_FN void send_largest(T& team, const Session& s, const Work& work, std::uint32_t row,
                                   std::uint32_t number) {
    const std::uint32_t lane = team.thread_rank() % T::kLanes, warp = team.thread_rank() / T::kLanes;
    const Part part = part_of(work, row, number);
    List<T> list;
    if constexpr (most == 1) {
      const Candidate largest = largest_of_warp(team, largest_of_thread(team, part));
      if (lane == 0) list.own[0] = largest;
    } else {
      Search<T, most> search{.list = {}, .least = {bound_of(team, work.k, part), 0}};
      search_part(team, lane, work.k, part, search);
      list = search.list;
    }
    merge_warps(team, lane, warp, work.k, list);
    if (warp != 0) return;
    for (std::uint32_t turn = 0; turn < s.size(); ++turn) {
      Pack* const to = lines(s, work, rank_after(s.rank(), turn, s.size()), s.rank(), row, number);
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < List<T>::kOwn; ++j) {
        const std::uint32_t i = j * T::kLanes + lane;
        if (i >= work.k) break;
        team.store(to + i, Line::encode<T::kAtomicBytes>({{list.own[j].key, list.own[j].place, 0, 0}}, s.epoch));
      }
    }
  }

  // The second look: columns are near, in the processor's cache. The code is short, because it comes from memory, too.
  // So one place of it sorts what lanes hold, also at the end.
  template <Team T>
  static WEFT_FN void search_part(T& team, std::uint32_t lane, std::uint32_t k, const Part& part,
                                  Search<T, most>& search) {
    const auto packs = static_cast<std::uint32_t>(part.data.packs());
    bool more = true;
    WEFT_NO_UNROLL
    for (std::uint32_t first = 0; more; first += team.size()) {
      more = first < packs;
      const std::uint32_t number = first + team.thread_rank();
      const Pack pack = number < packs ? part.data.load(number) : Pack{};
      bool none = true;
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kElements; ++i) none &= !candidate_in(part, pack, number, i).above(search.least);
      if (more && team.all_lanes(none)) continue;
      WEFT_NO_UNROLL
      for (std::uint32_t i = 0; i < (more ? kElements : 1); ++i) {
        search.offer(team, lane, k, candidate_in(part, pack, number, i), !more);
      }
    }
  }

  template <Team T>
  static WEFT_FN Candidate largest_of_thread(T& team, const Part& part) {
    Candidate best{};
    each_pack_of(team, part, [&](const Pack& pack, std::uint32_t at) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kElements; ++i) {
        const std::uint32_t key = order_in(part, pack, at, i);  // later columns of a thread must be larger
        if (key > best.key) best = Candidate::of(key, part.first + at * kElements + i);
      }
    });
    return best;
  }
  template <Team T>
  static WEFT_FN Candidate largest_of_warp(T& team, const Candidate& of_lane) {
    const std::uint32_t key = team.most_of(of_lane.key);
    return {key, team.most_of(of_lane.key == key ? of_lane.place : 0)};
  }

  // A key that k numbers of the part reach, or 0. By all threads of the block.
  template <Team T>
  static WEFT_FN std::uint32_t bound_of(T& team, std::uint32_t k, const Part& part) {
    const std::uint32_t warps = team.size() / T::kLanes, share = (k + warps - 1) / warps;
    if (share > T::kLanes) return 0;
    std::uint32_t own = 0;
    each_pack_of(team, part, [&](const Pack& pack, std::uint32_t at) {
      WEFT_UNROLL
      for (std::uint32_t i = 0; i < kElements; ++i) {
        const std::uint32_t key = order_in(part, pack, at, i);
        own = key > own ? key : own;
      }
    });
    std::uint32_t bound = 0;
    for (std::uint32_t i = 0; i < share; ++i) {
      bound = team.most_of(own);
      if (own == bound) own = 0;  // in all lanes that have it: the bound is then lower than it need be
    }
    if (warps == 1) return bound;
    // Warps that merge their lists have read the words of the row before.
    if (team.thread_rank() % T::kLanes == 0) team.share(team.thread_rank() / T::kLanes, bound);
    team.sync();
    for (std::uint32_t warp = 0; warp < warps; ++warp) {
      const auto of_warp = static_cast<std::uint32_t>(team.shared(warp));
      bound = of_warp < bound ? of_warp : bound;
    }
    return bound;
  }

  // Puts all warps' lists into the first warp's. Half of the warps at a time hand theirs on.
  template <Team T>
  static WEFT_FN void merge_warps(T& team, std::uint32_t lane, std::uint32_t warp, std::uint32_t k, List<T>& list) {
    const std::uint32_t warps = team.size() / T::kLanes;
    std::uint32_t half = 1;
    while (2 * half < warps) half *= 2;
    if (warps == 1) return;
    for (; half != 0; half /= 2) {
      static_assert(kMostThreads / 32 / 2 * most * 2 <= kMostTallyWords);
      if (warp >= half && warp < 2 * half) {
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < List<T>::kOwn; ++j) {
          const std::uint32_t i = j * T::kLanes + lane;
          if (i >= k) break;
          std::uint32_t* const words = team.tally() + ((warp - half) * k + i) * 2;
          words[0] = list.own[j].key;
          words[1] = list.own[j].place;
        }
      }
      team.sync();
      if (warp < half && warp + half < warps) {
        List<T> other;
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < List<T>::kOwn; ++j) {
          const std::uint32_t i = j * T::kLanes + lane;
          if (i >= k) break;
          const std::uint32_t* const words = team.tally() + (warp * k + i) * 2;
          other.own[j] = {words[0], words[1]};
        }
        list.merge(team, lane, other);
      }
      team.sync();
    }
  }

  // --------------------------------------------------------------------------------------------- the largest of all

  // The candidates of `sender` for a part of a row, in the window of `owner`.
  static WEFT_FN Pack* lines(const Session& s, const Work& work, std::uint32_t owner, std::uint32_t sender,
                             std::uint32_t row, std::uint32_t part) {
    const std::uint64_t slot = s.epoch % kBanks * s.size() + sender;
    return reinterpret_cast<Pack*>(region_of(*s.call, owner) + s.layout().gather) + slot * s.layout().two_shot_packs +
           (std::uint64_t{row} * work.parts + part) * work.k;
  }

  // Lists of one candidate: a warp has all lists of a row.
  template <Team T>
  static WEFT_FN bool merge_by_warps(T& team, const Session& s, const Work& work) {
    const std::uint32_t lane = team.thread_rank() % T::kLanes, warp = team.thread_rank() / T::kLanes;
    const std::uint32_t warps = team.size() / T::kLanes;
    for (std::uint32_t row = (team.block_rank() - 1) * warps + warp; row < work.rows;
         row += (team.blocks() - 1) * warps) {
      List<T> list;
      if (!take_lists(team, s, work, row, {0, 1}, list)) return false;
      put(work, lane, row, list);
    }
    return true;
  }
  // Longer lists: the warps of a block share the lists of a row.
  template <Team T>
  static WEFT_FN bool merge_by_blocks(T& team, const Session& s, const Work& work) {
    const std::uint32_t lane = team.thread_rank() % T::kLanes, warp = team.thread_rank() / T::kLanes;
    for (std::uint32_t row = team.block_rank() - 1; row < work.rows; row += team.blocks() - 1) {
      List<T> list;
      if (!team.all(take_lists(team, s, work, row, {warp, team.size() / T::kLanes}, list))) return false;
      merge_warps(team, lane, warp, work.k, list);
      if (warp == 0) put(work, lane, row, list);
    }
    return true;
  }

  // A warp's share of a row's lists: first, first + step, … of as many as it awaits at once.
  struct WarpPart {
    std::uint32_t first, step;
  };
  // By all lanes of a warp. False when the call has failed.
  template <Team T>
  static WEFT_FN bool take_lists(T& team, const Session& s, const Work& work, std::uint32_t row, const WarpPart& part,
                                 List<T>& list) {
    constexpr std::uint32_t kOwn = List<T>::kOwn, kAtOnce = most == 1 ? T::kLanes : 1;
    const std::uint32_t lane = team.thread_rank() % T::kLanes, all = s.size() * work.parts;
    WEFT_NO_UNROLL
    for (std::uint32_t first = part.first * kAtOnce; first < all; first += part.step * kAtOnce) {
      const std::uint32_t q = most == 1 ? first + lane : first, sender = q / work.parts;
      Pack* const from = q < all ? lines(s, work, s.rank(), sender, row, q % work.parts) : nullptr;
      const auto has = [&](std::uint32_t j) { return q < all && (most == 1 || j * T::kLanes + lane < work.k); };
      const auto line = [&](std::uint32_t j) { return most == 1 ? from : from + j * T::kLanes + lane; };
      Pack wire[kOwn] = {};
      bool here = false;
      const auto arrived = [&] {
        here = true;
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kOwn; ++j) {
          if (!has(j)) continue;
          wire[j] = team.load(line(j));
          here &= Line::arrived<T::kAtomicBytes>(wire[j], s.epoch);
        }
        return team.all_lanes(here);
      };
      if (!wait(team, s, {.phase = 1, .warp = true}, arrived, [&] { return here ? kNoPeer : sender; })) return false;
      List<T> came;
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kOwn; ++j) {
        if (!has(j)) continue;
        team.store(line(j), kRestPack);
        const Pack payload = Line::decode(wire[j]);
        came.own[j] = {payload.word[0], payload.word[1]};
      }
      if constexpr (most == 1) {
        const Candidate largest = largest_of_warp(team, came.own[0]);
        if (lane == 0) list.own[0] = one_of(list.own[0], largest, true);
      } else {
        list.merge(team, lane, came);
      }
    }
    return true;
  }

  template <class T>
  static WEFT_FN void put(const Work& work, std::uint32_t lane, std::uint32_t row, const Largest<T, most>& list) {
    WEFT_UNROLL
    for (std::uint32_t j = 0; j < List<T>::kOwn; ++j) {
      const std::uint32_t i = j * T::kLanes + lane;
      if (i >= work.k) break;
      const std::uint64_t at = std::uint64_t{row} * work.k + i;
      work.indices[at] = static_cast<std::int32_t>(list.own[j].column());
      if (work.values != nullptr) {
        static_cast<Storage*>(work.values)[at] = Element<type>::narrow(number_of(list.own[j].key));
      }
    }
  }
};

}  // namespace weft::detail
