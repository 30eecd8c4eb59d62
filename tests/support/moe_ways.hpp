// Every way of rows through an exchange: slots or a ring, joined, in halves or in rounds. The same for CPU ranks and
// GPU ranks.
#pragma once

#include <vector>

#include "support/moe_rounds.hpp"
#include "weft/moe.hpp"

namespace weft::test {

// A way makes one dispatch and its combine. A call has the tensors: dispatch(), combine(handle), which makes the
// experts' results first, and forget(), after which its outputs hold nothing that a dispatch made again must write.
template <class Call>
struct MoeWay {
  const char* name;
  void (*make)(const MoeExchange& exchange, Call& call);
  RowPath path;
  std::uint32_t ring_rows = 0;
  bool late = false;  // weights at combine
  bool repeatable = false;
  std::uint32_t slot_tokens = 0;  // calls take these slots beside a ring

  MoeExchangeArgs exchange(MoeExchangeArgs args) const {
    args.path = path;
    args.ring_rows = ring_rows;
    args.weights_at_combine = late;
    args.repeatable = repeatable;
    args.slot_tokens = slot_tokens;
    return args;
  }
};

template <class Call>
void make_joined(const MoeExchange& exchange, Call& call) {
  exchange.combine(call.combine(exchange.dispatch(call.dispatch())));
}
template <class Call>
void make_in_halves(const MoeExchange& exchange, Call& call) {
  const DispatchArgs there = call.dispatch();
  const DispatchHandle handle = exchange.dispatch_send(there);
  exchange.dispatch_wait(handle, there);
  const CombineArgs back = call.combine(handle);
  exchange.combine_send(back);
  exchange.combine_wait(back);
}
// For five experts on the rank that has most.
template <class Call>
void make_in_rounds(const MoeExchange& exchange, Call& call) {
  const Division division{2, 1, 2};
  DispatchArgs there = call.dispatch();
  there.rounds = rounds_of(division);
  const DispatchHandle handle = exchange.dispatch_send(there);
  for (; there.round < division.size(); ++there.round) {
    exchange.dispatch_wait(handle, there);
    CombineArgs back = call.combine(handle);
    back.rounds = there.rounds;
    back.round = there.round;
    exchange.combine_send(back);
    if (back.round + 1 == division.size()) exchange.combine_wait(back);
  }
}
template <class Call>
void make_again(const MoeExchange& exchange, Call& call) {
  DispatchArgs there = call.dispatch();
  there.again = exchange.dispatch(there);
  exchange.combine(call.combine(there.again));
  call.forget();
  there.host_counts = nullptr;
  exchange.combine(call.combine(exchange.dispatch(there)));
}

// The ways of a layout; the first is the simplest. `few`: places of a ring that rows go round several times; `many`:
// places for all `tokens`.
template <class Call>
std::vector<MoeWay<Call>> moe_ways(RowLayout layout, std::uint32_t few, std::uint32_t many, std::uint32_t tokens) {
  using Way = MoeWay<Call>;
  constexpr auto joined = make_joined<Call>, halves = make_in_halves<Call>, rounds = make_in_rounds<Call>,
                 again = make_again<Call>;
  const std::vector<Way> by_ring{{"ring of few places", joined, RowPath::ring, few},
                                 {"ring of many places", joined, RowPath::ring, many},
                                 {"ring, halves", halves, RowPath::ring, many},
                                 {"ring, made again", again, RowPath::ring, few, false, true}};
  if (layout == RowLayout::rank_compact) return by_ring;
  std::vector<Way> all{{"slots", joined, RowPath::slots},
                       {"slots, halves", halves, RowPath::slots},
                       {"slots, rounds", rounds, RowPath::slots}};
  all.insert(all.end(), by_ring.begin(), by_ring.end());
  all.push_back({"ring, rounds", rounds, RowPath::ring, many});
  all.push_back({"slots beside a ring", joined, RowPath::ring, few, false, false, tokens});
  if (layout == RowLayout::rank_major) return all;
  all.push_back({"slots, late weights", joined, RowPath::slots, 0, true});
  all.push_back({"ring, late weights", joined, RowPath::ring, few, true});
  return all;
}

}  // namespace weft::test
