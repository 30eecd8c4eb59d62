// Combine: every rank adds up its experts' results for a token and returns one row; the token's owner adds the rows of
// all ranks. Sums are f32: by ascending expert on the experts' rank, by rank at the owner. If weights come with
// combine, a phase in front of these two sends them (ops/moe/late_weights.hpp).
#pragma once

#include <cstdint>

#include "ops/all_reduce/all_reduce.hpp"
#include "ops/moe/late_weights.hpp"
#include "ops/moe/moe_routing.hpp"

namespace weft::detail {

// `ranks_at_once`: ranks whose rows a thread awaits together. Four if there are no more, because others take registers.
// `late`: weights come with combine. `in_rounds`: it can be sent in rounds; others need fewer instructions.
template <DataType type, std::uint32_t ranks_at_once, bool late = false, bool in_rounds = false>
struct MoeCombine : MoeFrame<CombineWork> {
  using Frame = MoeFrame<CombineWork>;
  using R = Reduction<type, Ops::sum>;
  using Wire = typename R::Wire;
  static constexpr BeginScope kBeginScope = BeginScope::warp;  // lanes exchange a row's table entries
  static constexpr int kSending = late ? 1 : 0;                // the phase that sends rows; the next one receives them
  static constexpr int kPhases = kSending + 2;
  // Used for its way of receiving from many ranks at once.
  using Instance = AllReduceInstance<R, ranks_at_once == 8 ? 0 : ranks_at_once, true>;
  static_assert(Instance::kBatch == ranks_at_once && 32 % ranks_at_once == 0);
  static constexpr std::uint32_t kRowsAtOnce = 4;   // of experts
  static constexpr std::uint32_t kPacksAtOnce = 2;  // of a row, if there are many

  // Each round that is sent has a turn of its own, and the wait the last one.
  static WEFT_FN Turn turn(const Work& work) {
    const Rounds rounds = in_rounds ? work.rounds : Rounds{};
    const std::uint32_t own = work.phases.has(0) ? rounds.current : rounds.count;
    return {own, work.phases.has(kPhases - 1) ? kIdle : own + 1};
  }

  // A part of the row that goes to `owner` for one of its tokens.
  struct Unit {
    std::uint32_t token, owner, part;
  };
  // A row's table entries for a unit. All are asked for at once, before it is known whether there is a row: one after
  // the other would be a round trip to memory each.
  template <Team T>
  struct Loaded {
    std::uint32_t owner_tokens;
    std::uint32_t word;                  // of EntryCount: nobody looks at it before it is needed
    LaneArray<T, kMaxTopK> row, weight;  // of the experts' outputs; bits

    WEFT_FN std::uint32_t count() const { return EntryCount::of(word).count; }
  };
  // The table entries of the first unit that is received.
  struct Mine {
    std::uint32_t tokens;
    RankSet answering;
  };
  struct ThreadPlan : Frame::ThreadPlan {
    std::uint32_t units;        // of a row
    WarpShare sends;            // `share` is for receiving
    Unit sent;                  // its first unit
    std::uint32_t token, part;  // of the first one that it receives
  };
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{Frame::thread_plan(team, call, work), 0, {}, {}, 0, 0};
    if (team.block_rank() == 0) return p;
    p.units = units_of<T>(work.exchange.shape.combine_packs);
    if (work.pairs) p.units = (p.units + kPacksAtOnce - 1) / kPacksAtOnce;
    const std::uint32_t senders = senders_of(team, work.senders);
    p.sends = p.share;
    if (senders != 0) {
      p.sends = share_among(team, 0, senders);
      p.share = share_among(team, senders, team.size() / T::kLanes - senders);
    }
    p.sent = unit(call, p.units, p.sends.first);
    p.token = p.share.first / p.units;
    p.part = p.share.first % p.units;
    return p;
  }
  // The own tokens' rows come first.
  static WEFT_FN Unit unit(const Call& call, std::uint32_t units, std::uint32_t i) {
    const std::uint32_t row = i / units, turn = call.rank + row % call.size;
    return {row / call.size, turn < call.size ? turn : turn - call.size, i % units};
  }

  // Loaded with the words of enter(). Dispatch has a channel of its own, and only this word shows its end here. The
  // tables are not loaded: after a release() their memory is gone.
  struct Prefetched {
    bool failed;
    Mine mine;             // asked for by the send, if the wait is in the same launch
    std::uint32_t weight;  // `late`: the first one that this thread sends
  };
  template <Team T>
  static WEFT_FN Prefetched prefetch(T& team, const Session&, const Work& work, const ThreadPlan&) {
    if (!is_there(work)) return {};
    const std::uint32_t weight = late ? first_late_weight(team, work) : 0;
    const bool ended = team.load(&work.dispatch_admitted[team.block_rank()].value) == kEnded;
    return {!team.all_lanes(!ended), {}, weight};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p, Prefetched& prefetched) {
    if (prefetched.failed) return false;  // peers must not take the tables' contents for results
    if constexpr (phase == 0 && late) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
        renew_late_weights(team, s, work);
      } else {
        send_late_weights(team, s, work, prefetched.weight);
      }
      return true;
    } else if constexpr (phase == kSending) {
      if (team.block_rank() == 0) {
        if constexpr (!late) {
          if (!in_rounds || work.rounds.current == 0) Handshake::send(team, s, p.header);
        }
        return true;
      }
      if (work.phases.has(kSending + 1)) prefetched.mine = load_mine(s, work, p);
      return send(team, s, work, p);
    } else {
      if (team.block_rank() != 0) {
        if (!work.phases.has(kSending)) prefetched.mine = load_mine(s, work, p);
        return receive(team, s, work, p, prefetched.mine);
      }
      if (!Frame::compare(team, s, p.header, work.source_wait_ns)) return false;
      // Not with the send, because the wait still needs the tables.
      if (team.thread_rank() == 0) work.exchange.tables.header->waiting = 0;
      return true;
    }
  }

  // The place in the window of `owner` at which the row of `sender` for `token` arrives.
  static WEFT_FN Pack* slot(const Session& s, const Work& work, std::uint32_t owner, std::uint32_t sender,
                            std::uint32_t token) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint64_t index = std::uint64_t{s.epoch % kBanks * s.size() + sender} * shape.tokens + token;
    return reinterpret_cast<Pack*>(region_of(*s.call, owner) + work.exchange.areas.results) +
           index * shape.combine_packs;
  }
  static WEFT_FN Packs row(const ExchangeShape& shape, const void* rows, std::uint64_t index) {
    return Packs(static_cast<const Pack*>(rows) + index * shape.combine_packs, std::uint64_t{shape.combine_packs} * 4);
  }

  static WEFT_FN void add(typename R::Accumulator& sum, const Pack& row, float weight, bool first, bool weighted) {
    WEFT_UNROLL
    for (std::uint32_t i = 0; i < R::kElements; ++i) {
      const float value = Element<type>::widen(R::element(row, i));
      if (weighted) {
        sum.value[i] = first ? weight * value : multiply_add(weight, value, sum.value[i]);
      } else {
        sum.value[i] = first ? value : sum.value[i] + value;
      }
    }
  }

  static WEFT_FN std::uint64_t index_of(const ExchangeShape& shape, const Unit& unit) {
    return std::uint64_t{unit.owner} * shape.tokens + unit.token;
  }
  template <Team T>
  static WEFT_FN Loaded<T> load(const Work& work, const Unit& unit, std::uint32_t lane) {
    const ExchangeShape& shape = work.exchange.shape;
    const RoutingTables& tables = work.exchange.tables;
    Loaded<T> loaded{};
    if (unit.token >= shape.tokens) return loaded;
    const std::uint64_t index = index_of(shape, unit);
    loaded.owner_tokens = tables.header->tokens[unit.owner];
    loaded.word = tables.entry_counts[index];
    const ExpertEntry* const entries = tables.entries + index * shape.top_k;
    loaded.row.each(lane, shape.top_k, [&](std::uint32_t k, std::uint32_t& row, std::uint32_t j) {
      const ExpertEntry entry = entries[k];
      row = entry.row;
      loaded.weight.own[j] = bits_of<std::uint32_t>(entry.weight);
    });
    return loaded;
  }
  static WEFT_FN Mine load_mine(const Session& s, const Work& work, const ThreadPlan& p) {
    const RoutingTables& tables = work.exchange.tables;
    return {tables.header->tokens[s.rank()],
            p.token < work.exchange.shape.tokens ? tables.answering[p.token] : RankSet{}};
  }

  // Whether a token's row lies in the input as its owner gets it. By rank it does, unless it had no room in dispatch.
  // Its weights were given to dispatch.
  template <class T>
  static WEFT_FN bool is_made(const ExchangeShape& shape, const Loaded<T>& loaded) {
    return !late && has_joint_rows(shape.layout) && loaded.count() != 0;
  }
  // Whether the last of a token's experts here is one of `experts`. The last round that touches a token adds up all of
  // its rows.
  static WEFT_FN bool is_last_in(const ExpertRange& experts, const EntryCount& all_here) {
    return all_here.last >= experts.begin && all_here.last < experts.end;
  }

  // False when the call has failed.
  template <Team T>
  static WEFT_FN bool send(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    Unit next = p.sent;
    Loaded<T> loaded_next = load<T>(work, next, p.share.lane);
    const std::uint32_t all = work.exchange.tables.header->most_tokens * s.size() * p.units;
    const ExpertRange experts = in_rounds ? work.rounds.experts_of(work.phases) : ExpertRange{};
    for (std::uint32_t i = p.sends.first; i < all;) {
      const Unit unit = next;
      const Loaded<T> loaded = loaded_next;
      i += p.sends.step;
      if (i < all) {  // comes while this one is added up
        next = MoeCombine::unit(*s.call, p.units, i);
        loaded_next = load<T>(work, next, p.share.lane);
      }
      const EntryCount all_here = EntryCount::of(loaded.word);
      if (unit.token >= loaded.owner_tokens || all_here.count == EntryCount::kNoRow) continue;
      if (in_rounds && !is_last_in(experts, all_here)) continue;
      if (work.pairs) {
        if (!send_unit<kPacksAtOnce>(team, s, work, p, unit, loaded)) return false;
      } else {
        if (!send_unit<1>(team, s, work, p, unit, loaded)) return false;
      }
    }
    return true;
  }

  template <std::uint32_t packs_at_once, Team T>
  static WEFT_FN bool send_unit(T& team, const Session& s, const Work& work, const ThreadPlan& p, const Unit& unit,
                                const Loaded<T>& loaded) {
    Pack* const to = slot(s, work, unit.owner, s.rank(), unit.token);
    const auto put = [&](std::uint32_t pack, const Pack& sum) {
      team.store(to + pack, Wire::template encode<T::kAtomicBytes>(sum, s.epoch));
    };
    const std::uint32_t first = unit.part * T::kLanes, step = p.units * T::kLanes;
    if constexpr (late) {
      Loaded<T> weighed = loaded;
      const auto ready = [&] {
        return await_late_weights(team, s, work, p.share.lane, unit.owner, unit.token, loaded.count(), weighed.weight);
      };
      return add_up<packs_at_once>(team, work, first, step, p.share.lane, weighed, ready, put);
    } else {
      return add_up<packs_at_once>(
          team, work, first, step, p.share.lane, loaded, [] { return true; }, put);
    }
  }

  // Adds up the experts' rows of a token, and calls `put(pack, sum)` for the packs first, first + step, … of each lane.
  // `packs_at_once`: of a row, by a lane. Calls `ready()` once, when the first rows have been asked for; weights are
  // read behind it. False when it was false.
  template <std::uint32_t packs_at_once, Team T, class Ready, class Put>
  static WEFT_FN bool add_up(T& team, const Work& work, std::uint32_t first_pack, std::uint32_t step,
                             std::uint32_t lane, const Loaded<T>& loaded, Ready ready, Put put) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t packs = shape.combine_packs;
    // All lanes go round together, because they exchange rows and weights.
    for (std::uint32_t base = first_pack; base < packs; base += packs_at_once * step) {
      const std::uint32_t pack = base + lane;
      typename R::Accumulator sum[packs_at_once] = {};
      for (std::uint32_t first = 0; first < loaded.count(); first += kRowsAtOnce) {
        Pack in[packs_at_once][kRowsAtOnce] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kRowsAtOnce; ++k) {
          if (first + k >= loaded.count()) break;
          const Packs output = row(shape, work.input, loaded.row.get(team, first + k));
          WEFT_UNROLL
          for (std::uint32_t j = 0; j < packs_at_once; ++j) {
            if (pack + j * step < packs) in[j][k] = output.load(pack + j * step);
          }
        }
        if (first == 0 && base == first_pack && !ready()) return false;
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kRowsAtOnce; ++k) {
          if (first + k >= loaded.count()) break;
          const float weight = bits_of<float>(loaded.weight.get(team, first + k));
          WEFT_UNROLL
          for (std::uint32_t j = 0; j < packs_at_once; ++j) {
            add(sum[j], in[j][k], weight, first + k == 0, shape.weighted);
          }
        }
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < packs_at_once; ++j) {
        if (pack + j * step >= packs) break;
        put(pack + j * step, R::finish(sum[j]));
      }
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const ThreadPlan& p, const Mine& mine) {
    const ExchangeShape& shape = work.exchange.shape;
    const RoutingTables& tables = work.exchange.tables;
    std::uint32_t token = p.token, part = p.part;
    RankSet answering = mine.answering;
    const std::uint32_t all = mine.tokens * p.units;
    for (std::uint32_t i = p.share.first; i < all;) {
      for (std::uint32_t pack = part * T::kLanes + p.share.lane; pack < shape.combine_packs;
           pack += p.units * T::kLanes) {
        if (!receive_pack(team, s, work, token, pack, answering)) return false;
      }
      i += p.share.step;
      if (i >= all) break;
      token = i / p.units;
      part = i % p.units;
      answering = tables.answering[token];
    }
    return true;
  }

  template <Team T>
  static WEFT_FN bool receive_pack(T& team, const Session& s, const Work& work, std::uint32_t token, std::uint32_t pack,
                                   const RankSet& answering) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint64_t rank_packs = std::uint64_t{shape.tokens} * shape.combine_packs;
    typename R::Accumulator sum{};
    bool any = false;
    const auto take = [&](const Pack& payload) {
      if (any) {
        R::add(sum, payload);
      } else {
        R::begin(sum, payload);
      }
      any = true;
    };
    for (std::uint32_t first = 0; first < s.size(); first += ranks_at_once) {
      const std::uint32_t these = answering.word(first / 32 * 32) >> first % 32;
      const auto expected = [&](std::uint32_t k) { return (these >> k & 1u) != 0; };
      Pack received[ranks_at_once];
      Pack* const slots = slot(s, work, s.rank(), first, token) + pack;
      if (!Instance::receive(team, s, 1, slots, rank_packs, first, expected, received)) return false;
      WEFT_UNROLL
      for (std::uint32_t k = 0; k < ranks_at_once; ++k) {
        if (!expected(k)) continue;
        take(Wire::decode(received[k]));
        team.store(slots + k * rank_packs, kRestPack);
      }
    }
    if (work.residual != nullptr) take(row(shape, work.residual, token).load(pack));
    row(shape, work.output, token).store(pack, R::finish(sum));
    return true;
  }
};

}  // namespace weft::detail
