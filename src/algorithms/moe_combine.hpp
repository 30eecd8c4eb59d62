// Combine: every rank adds up what its experts made of a token and returns one row; the token's owner adds the rows of
// all ranks. Sums are f32: by ascending expert on the experts' rank, by rank at the owner.
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"
#include "algorithms/moe_routing.hpp"

namespace weft::detail {

template <DataType type>
struct MoeCombine : MoeFrame<CombineWork> {
  using Frame = MoeFrame<CombineWork>;
  using R = Reduction<type, ReduceOp::sum>;
  using Wire = typename R::Wire;
  using Instance = AllReduceInstance<R, 0, true>;  // for its way of receiving from many ranks at once
  static constexpr std::uint32_t kBatch = Instance::kBatch;
  static constexpr std::uint32_t kAtOnce = 4;       // outputs of experts
  static constexpr std::uint32_t kPacksAtOnce = 2;  // of a row

  // A part of the row that goes to `owner` for one of its tokens.
  struct Unit {
    std::uint32_t token, owner, part;
  };
  // What the tables say of a unit's row. All of it is asked for at once, before it is known whether there is a row: one
  // thing after the other would be a round trip to memory each.
  struct Loaded {
    std::uint32_t owner_tokens, count;
    ExpertEntry entries[kAtOnce];  // the first ones
  };
  struct Places : Frame::Places {
    std::uint32_t units;        // of a row
    WarpShare sends;            // `share` has what this warp receives
    Unit sent;                  // its first unit
    std::uint32_t token, part;  // of the first one that it receives
  };
  template <Team T>
  static WEFT_FN Places places(T& team, const Call& call, const Work& work) {
    Places p{Frame::places(team, call, work), 0, {}, {}, 0, 0};
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
  // The own tokens' rows first.
  static WEFT_FN Unit unit(const Call& call, std::uint32_t units, std::uint32_t i) {
    const std::uint32_t row = i / units, turn = call.rank + row % call.size;
    return {row / call.size, turn < call.size ? turn : turn - call.size, i % units};
  }

  // Loaded with the words of enter(). Dispatch has a channel of its own, whose end this one does not know. Not the
  // tables: after a release() there is no memory where they were.
  struct Early {
    bool failed;
  };
  template <Team T>
  static WEFT_FN Early early(T& team, const Session&, const Work& work, const Places&) {
    if (!is_there(work)) return {};
    return {team.load(&work.dispatch_admitted[team.block_rank()].value) == kEnded};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const Places& p, const Early& early) {
    if (early.failed) return false;  // peers must not take what the tables say for results
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        send(team, s, work, p);
      }
      return true;
    } else {
      if (team.block_rank() != 0) return receive(team, s, work, p);
      if (!Frame::compare(team, s, p.header, work.source_wait_ns)) return false;
      // Not with the send, which leaves the tables to the wait.
      if (team.thread_rank() == 0) work.exchange.tables.header->waiting = 0;
      return true;
    }
  }

  // Where the row of `sender` for `token` arrives in the window of `owner`.
  static WEFT_FN Pack* slot(const Session& s, const Work& work, std::uint32_t owner, std::uint32_t sender,
                            std::uint32_t token) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint64_t index = std::uint64_t{s.epoch % kBanks * s.size() + sender} * shape.tokens + token;
    return reinterpret_cast<Pack*>(region_of(*s.call, owner) + work.exchange.layout.results) +
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
  static WEFT_FN Loaded load(const Work& work, const Unit& unit) {
    const ExchangeShape& shape = work.exchange.shape;
    const RoutingTables& tables = work.exchange.tables;
    Loaded loaded{};
    if (unit.token >= shape.tokens) return loaded;
    const std::uint64_t index = index_of(shape, unit);
    loaded.owner_tokens = tables.header->tokens[unit.owner];
    loaded.count = tables.entry_counts[index];
    WEFT_UNROLL
    for (std::uint32_t k = 0; k < kAtOnce; ++k) {
      if (k < shape.top_k) loaded.entries[k] = tables.entries[index * shape.top_k + k];
    }
    return loaded;
  }

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const Places& p) {
    Unit next = p.sent;
    Loaded loaded_next = load(work, next);
    const std::uint32_t all = work.exchange.tables.header->most_tokens * s.size() * p.units;
    for (std::uint32_t i = p.sends.first; i < all;) {
      const Unit unit = next;
      const Loaded loaded = loaded_next;
      i += p.sends.step;
      if (i < all) {  // comes while this one is added up
        next = MoeCombine::unit(*s.call, p.units, i);
        loaded_next = load(work, next);
      }
      // kNone: the row did not come here.
      if (unit.token < loaded.owner_tokens && loaded.count != kNone) send_unit(team, s, work, p, unit, loaded);
    }
  }

  template <Team T>
  static WEFT_FN void send_unit(T& team, const Session& s, const Work& work, const Places& p, const Unit& unit,
                                const Loaded& loaded) {
    const ExchangeShape& shape = work.exchange.shape;
    const ExpertEntry* const entries = work.exchange.tables.entries + index_of(shape, unit) * shape.top_k;
    Pack* const to = slot(s, work, unit.owner, s.rank(), unit.token);
    const std::uint32_t step = p.units * T::kLanes, packs = shape.combine_packs;
    for (std::uint32_t pack = unit.part * T::kLanes + p.share.lane; pack < packs; pack += kPacksAtOnce * step) {
      typename R::Accumulator sum[kPacksAtOnce] = {};
      for (std::uint32_t first = 0; first < loaded.count; first += kAtOnce) {
        Pack in[kPacksAtOnce][kAtOnce] = {};
        float weight[kAtOnce] = {};
        WEFT_UNROLL
        for (std::uint32_t k = 0; k < kAtOnce; ++k) {
          if (first + k >= loaded.count) break;
          const ExpertEntry entry = first == 0 ? loaded.entries[k] : entries[first + k];
          weight[k] = entry.weight;
          const Packs output = row(shape, work.input, entry.row);
          WEFT_UNROLL
          for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
            if (pack + j * step < packs) in[j][k] = output.load(pack + j * step);
          }
        }
        WEFT_UNROLL
        for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
          if (pack + j * step >= packs) break;
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kAtOnce; ++k) {
            if (first + k < loaded.count) add(sum[j], in[j][k], weight[k], first + k == 0, shape.weighted);
          }
        }
      }
      WEFT_UNROLL
      for (std::uint32_t j = 0; j < kPacksAtOnce; ++j) {
        if (pack + j * step >= packs) break;
        team.store(to + pack + j * step, Wire::template encode<T::kAtomicBytes>(R::finish(sum[j]), s.epoch));
      }
    }
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const Places& p) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint64_t rank_packs = std::uint64_t{shape.tokens} * shape.combine_packs;
    std::uint32_t token = p.token, part = p.part;
    const RoutingTables& tables = work.exchange.tables;
    RankSet answering = token < shape.tokens ? tables.answering[token] : RankSet{};
    const std::uint32_t all = tables.header->tokens[s.rank()] * p.units;
    for (std::uint32_t i = p.share.first; i < all;) {
      for (std::uint32_t pack = part * T::kLanes + p.share.lane; pack < shape.combine_packs;
           pack += p.units * T::kLanes) {
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
        for (std::uint32_t first = 0; first < s.size(); first += kBatch) {
          const auto expected = [&](std::uint32_t k) { return first + k < s.size() && answering.has(first + k); };
          Pack received[kBatch];
          Pack* const slots = slot(s, work, s.rank(), first, token) + pack;
          if (!Instance::receive(team, s, 1, slots, rank_packs, first, expected, received)) return false;
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kBatch; ++k) {
            if (!expected(k)) continue;
            take(Wire::decode(received[k]));
            team.store(slots + k * rank_packs, kRestPack);
          }
        }
        if (work.residual != nullptr) take(row(shape, work.residual, token).load(pack));
        row(shape, work.output, token).store(pack, R::finish(sum));
      }
      i += p.share.step;
      if (i >= all) break;
      token = i / p.units;
      part = i % p.units;
      answering = tables.answering[token];
    }
    return true;
  }
};

}  // namespace weft::detail
