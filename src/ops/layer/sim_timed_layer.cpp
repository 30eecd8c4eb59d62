#include "ops/layer/sim_timed_layer.hpp"

#include <algorithm>
#include <span>

#include "ops/moe/rounds.hpp"
#include "ops/moe/rows_of_rounds.hpp"
#include "sim/schedule.hpp"

namespace weft::sim {
namespace {

using detail::kJoined;
using detail::kSend;
using detail::kWait;
using detail::Rounds;
using Launches = std::vector<detail::Phases>;

// The caller's stream, and the layer's two.
constexpr unsigned kCallers = 0, kThere = 1, kBack = 2, kStreams = 3;

std::uint32_t experts_of_rank(const TimedTraffic& traffic) {
  return traffic.experts / traffic.ranks;
}

Rounds rounds_of(const TimedLayer& layer) {
  return detail::divide(experts_of_rank(layer.traffic), {.count = static_cast<std::uint32_t>(layer.round_ns.size())});
}

// Different experts for each token, drawn with equal chances.
Routing drawn(const TimedTraffic& traffic) {
  Routing routing(traffic.ranks);
  Random random(1);
  for (std::vector<std::int64_t>& ids : routing) {
    while (ids.size() < std::size_t{traffic.tokens} * traffic.top_k) {
      const std::int64_t id = random.below(traffic.experts);
      const auto token = ids.end() - static_cast<std::ptrdiff_t>(ids.size() % traffic.top_k);
      if (std::find(token, ids.end(), id) == ids.end()) ids.push_back(id);
    }
  }
  return routing;
}

// The same with some rows alone, as detail::keep_rows().
template <class Stays>
Routing drawn_rows(const TimedTraffic& traffic, Stays stays) {
  Routing routing = drawn(traffic);
  const std::int64_t local = experts_of_rank(traffic);
  for (std::vector<std::int64_t>& ids : routing) {
    for (std::size_t token = 0; token < ids.size(); token += traffic.top_k)
      detail::keep_rows(std::span(ids).subspan(token, traffic.top_k), local, stays);
  }
  return routing;
}

TimedRun ended(TimedExchange& exchange) {
  exchange.run();
  TimedRun run{.ns = exchange.machine().end(), .outputs = {}};
  for (unsigned rank = 0; rank < exchange.ranks(); ++rank) run.outputs.push_back(exchange.output(rank));
  return run;
}

// Dispatch and combine, each alone: the ranks begin at once.
TimedParts exchange_alone(const TimedTraffic& traffic, const Routing& routing, double processors,
                          const Launches& launches) {
  TimedExchange exchange(traffic, routing, 1);
  TimedMachine& machine = exchange.machine();
  const auto launch = [&](auto part) {
    for (unsigned rank = 0; rank < traffic.ranks; ++rank) {
      for (const detail::Phases phases : launches) (exchange.*part)(rank, 0, processors, phases, Rounds{});
    }
  };
  launch(&TimedExchange::dispatch);
  machine.order_all();
  const std::size_t dispatched = machine.launches();
  launch(&TimedExchange::combine);
  exchange.run();
  const double middle = machine.begin(dispatched) - kCosts.launch;
  return {.dispatch = middle, .experts = 0, .combine = machine.end(dispatched) - middle};
}

double experts_alone(const TimedTraffic& traffic, const std::vector<double>& round_ns) {
  TimedExchange exchange(traffic, drawn(traffic), 1);
  for (const double ns : round_ns) exchange.compute(0, 0, kCosts.processors, {}, ns);
  exchange.run();
  return exchange.machine().end();
}

}  // namespace

TimedRun run_plain(const TimedLayer& layer) {
  TimedExchange exchange(layer.traffic, drawn(layer.traffic), kStreams);
  for (unsigned rank = 0; rank < exchange.ranks(); ++rank) {
    exchange.dispatch(rank, kCallers, kCosts.processors, kJoined, {});
    exchange.compute(rank, kCallers, kCosts.processors, {}, layer.experts_ns);
    exchange.combine(rank, kCallers, kCosts.processors, kJoined, {});
  }
  return ended(exchange);
}

TimedParts parts_of_plain(const TimedLayer& layer) {
  TimedParts parts = exchange_alone(layer.traffic, drawn(layer.traffic), kCosts.processors, {kJoined});
  parts.experts = experts_alone(layer.traffic, {layer.experts_ns});
  return parts;
}

double ideal(const TimedParts& parts) {
  return parts.dispatch + parts.experts + parts.combine;
}

// As in_rounds() of ops/layer/layer.cpp.
TimedRun run_rounds(const TimedLayer& layer) {
  TimedExchange exchange(layer.traffic, drawn(layer.traffic), kStreams);
  TimedMachine& machine = exchange.machine();
  for (unsigned rank = 0; rank < exchange.ranks(); ++rank) {
    Rounds rounds = rounds_of(layer);
    machine.order(rank, kCallers, kThere);
    exchange.dispatch(rank, kThere, layer.processors, kSend, rounds);
    for (; rounds.current < rounds.count; ++rounds.current) {
      exchange.dispatch(rank, kThere, layer.processors, kWait, rounds);
      machine.order(rank, kThere, kCallers);
      exchange.compute(rank, kCallers, kCosts.processors - 2 * layer.processors, rounds.experts(rounds.current),
                       layer.round_ns[rounds.current]);
      machine.order(rank, kCallers, kBack);
      exchange.combine(rank, kBack, layer.processors, kSend, rounds);
    }
    exchange.combine(rank, kBack, layer.processors, kWait, rounds);
  }
  return ended(exchange);
}

// By a ring dispatch and combine alone are two launches each: one for both would have to divide its processors.
TimedRoundParts parts_of_rounds(const TimedLayer& layer) {
  const TimedTraffic& traffic = layer.traffic;
  const Rounds rounds = rounds_of(layer);
  const std::int64_t first_end = rounds.experts(0).end, last_begin = rounds.experts(rounds.count - 1).begin;
  const Routing first_rows = drawn_rows(traffic, [&](std::int64_t first, std::int64_t) { return first < first_end; });
  const Routing last_rows = drawn_rows(traffic, [&](std::int64_t, std::int64_t last) { return last >= last_begin; });
  const auto alone = [&](const Routing& routing) {
    return exchange_alone(traffic, routing, layer.processors,
                          traffic.ring ? Launches{kSend, kWait} : Launches{kJoined});
  };
  TimedRoundParts parts{.all = alone(drawn(traffic)),
                        .first_dispatch = alone(first_rows).dispatch,
                        .last_combine = alone(last_rows).combine};
  parts.all.experts = experts_alone(traffic, layer.round_ns);
  return parts;
}

// Experts hide all of dispatch and combine but the first rows and the last ones; or the other way round.
double ideal(const TimedRoundParts& parts) {
  const double seen = parts.first_dispatch + parts.last_combine;
  return std::max(parts.all.experts, parts.all.dispatch + parts.all.combine - seen) + seen;
}

}  // namespace weft::sim
