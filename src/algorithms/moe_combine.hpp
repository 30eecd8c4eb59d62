// Combine: every rank adds up what its experts made of a token and returns one row; the token's owner adds the rows of
// all ranks. Sums are f32: by ascending expert on the experts' rank, by rank at the owner.
#pragma once

#include <cstdint>

#include "algorithms/all_reduce.hpp"
#include "algorithms/moe_routing.hpp"

namespace weft::detail {

template <DataType type>
struct MoeCombine : MoeFrame<CombineWork> {
  using R = Reduction<type, ReduceOp::sum>;
  using Wire = typename R::Wire;
  using Instance = AllReduceInstance<R, 0, true>;  // for its way of receiving from many ranks at once
  static constexpr std::uint32_t kBatch = Instance::kBatch;

  // Dispatch has a channel of its own, whose end this one does not know. Loaded with the words of enter().
  struct Early {
    std::uint32_t failed;
  };
  template <Team T>
  static WEFT_FN Early early(T& team, const Session&, const Places& p) {
    return {p.work.dispatch_dead != nullptr ? team.load(p.work.dispatch_dead) : 0};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Places& p, const Early& early) {
    const Work& work = p.work;
    if (early.failed != 0) return false;  // peers must not take what the tables say for results
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) {
        Handshake::send(team, s, p.header);
      } else {
        send(team, s, work, p.share);
      }
      return true;
    } else {
      if (team.block_rank() != 0) return receive(team, s, work, p.share);
      if (!Handshake::compare(team, s, p.header, 1)) return false;
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

  template <Team T>
  static WEFT_FN void send(T& team, const Session& s, const Work& work, const WarpShare& share) {
    const ExchangeShape& shape = work.exchange.shape;
    const RoutingTables& tables = work.exchange.tables;
    const std::uint32_t units = units_of<T>(shape.combine_packs);
    const std::uint32_t rows = tables.header->most_tokens * s.size();
    constexpr std::uint32_t kAtOnce = 4;
    for (std::uint32_t i = share.first; i < rows * units; i += share.step) {
      const std::uint32_t token = i / units / s.size(), turn = s.rank() + i / units % s.size();
      const std::uint32_t owner = turn < s.size() ? turn : turn - s.size();
      if (token >= tables.header->tokens[owner]) continue;
      const std::uint64_t index = std::uint64_t{owner} * shape.tokens + token;
      const std::uint32_t count = tables.entry_counts[index];
      if (count == kNone) continue;  // the row did not come here
      const ExpertEntry* const entries = tables.entries + index * shape.top_k;
      Pack* const to = slot(s, work, owner, s.rank(), token);
      for (std::uint32_t pack = i % units * T::kLanes + share.lane; pack < shape.combine_packs;
           pack += units * T::kLanes) {
        typename R::Accumulator sum{};
        for (std::uint32_t first = 0; first < count; first += kAtOnce) {
          Pack in[kAtOnce] = {};
          float weight[kAtOnce] = {};
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kAtOnce; ++k) {
            if (first + k >= count) break;
            const ExpertEntry entry = entries[first + k];
            weight[k] = entry.weight;
            in[k] = row(shape, work.input, entry.row).load(pack);
          }
          WEFT_UNROLL
          for (std::uint32_t k = 0; k < kAtOnce; ++k) {
            if (first + k < count) add(sum, in[k], weight[k], first + k == 0, shape.weighted);
          }
        }
        team.store(to + pack, Wire::template encode<T::kAtomicBytes>(R::finish(sum), s.epoch));
      }
    }
  }

  template <Team T>
  static WEFT_FN bool receive(T& team, const Session& s, const Work& work, const WarpShare& share) {
    const ExchangeShape& shape = work.exchange.shape;
    const RoutingTables& tables = work.exchange.tables;
    const std::uint32_t units = units_of<T>(shape.combine_packs);
    const std::uint64_t rank_packs = std::uint64_t{shape.tokens} * shape.combine_packs;
    for (std::uint32_t i = share.first; i < tables.header->tokens[s.rank()] * units; i += share.step) {
      const std::uint32_t token = i / units;
      const RankSet answering = tables.answering[token];
      for (std::uint32_t pack = i % units * T::kLanes + share.lane; pack < shape.combine_packs;
           pack += units * T::kLanes) {
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
    }
    return true;
  }
};

}  // namespace weft::detail
