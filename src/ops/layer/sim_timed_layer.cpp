#include "ops/layer/sim_timed_layer.hpp"

#include <algorithm>
#include <span>

#include "ops/layer/layer_order.hpp"
#include "ops/moe/rounds.hpp"
#include "ops/moe/rows_of_rounds.hpp"
#include "sim/schedule.hpp"

namespace weft::sim {
namespace {

using detail::kJoined;
using detail::kSend;
using detail::kWait;
using detail::LayerOrder;
using detail::LayerStream;
using detail::Rounds;
using Launches = std::vector<detail::Phases>;

constexpr unsigned kStreams = static_cast<unsigned>(LayerStream::shared) + 1;

std::uint32_t experts_of_rank(const TimedTraffic& traffic) {
  return traffic.experts / traffic.ranks;
}

Rounds rounds_of(const TimedLayer& layer) {
  return detail::divide(experts_of_rank(layer.traffic),
                        {.count = static_cast<std::uint32_t>(layer.division.size()), .experts = layer.division.data()});
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

// The parts of one rank's layer, as LayerOrder asks for them.
class RankParts {
 public:
  // Experts and communication have so many processors.
  struct Processors {
    double experts, communication;
  };
  // `round_ns`: of the experts of each round.
  RankParts(TimedExchange& exchange, unsigned rank, const Processors& processors, const std::vector<double>& round_ns,
            const Rounds& rounds)
      : exchange_(exchange), rank_(rank), processors_(processors), round_ns_(round_ns), rounds_(rounds) {}

  static constexpr bool has_shared() { return false; }
  void shared_expert(LayerStream) {}
  void order(LayerStream before, LayerStream behind) {
    exchange_.machine().order(rank_, static_cast<unsigned>(before), static_cast<unsigned>(behind));
  }
  void dispatch(LayerStream on) { launch(&TimedExchange::dispatch, on, kJoined, 0); }
  void dispatch_send(LayerStream on) { launch(&TimedExchange::dispatch, on, kSend, 0); }
  void dispatch_wait(LayerStream on, std::uint32_t round) { launch(&TimedExchange::dispatch, on, kWait, round); }
  void combine(LayerStream on) { launch(&TimedExchange::combine, on, kJoined, 0); }
  void combine_send(LayerStream on, std::uint32_t round) { launch(&TimedExchange::combine, on, kSend, round); }
  void combine_wait(LayerStream on) { launch(&TimedExchange::combine, on, kWait, 0); }
  void experts(std::uint32_t round) {
    exchange_.compute(rank_, static_cast<unsigned>(LayerStream::callers), processors_.experts, rounds_.experts(round),
                      round_ns_[round]);
  }

 private:
  using Part = void (TimedExchange::*)(unsigned, unsigned, double, detail::Phases, const Rounds&);
  void launch(Part part, LayerStream on, detail::Phases phases, std::uint32_t round) {
    Rounds rounds = rounds_;
    rounds.current = round;
    (exchange_.*part)(rank_, static_cast<unsigned>(on), processors_.communication, phases, rounds);
  }

  TimedExchange& exchange_;
  unsigned rank_;
  Processors processors_;
  const std::vector<double>& round_ns_;
  Rounds rounds_;
};

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
  const std::vector<double> experts_ns{layer.experts_ns};
  for (unsigned rank = 0; rank < exchange.ranks(); ++rank) {
    RankParts parts(exchange, rank, {kCosts.processors, kCosts.processors}, experts_ns, {});
    LayerOrder(parts, 1).plain();
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

TimedRun run_rounds(const TimedLayer& layer) {
  TimedExchange exchange(layer.traffic, drawn(layer.traffic), kStreams);
  const Rounds rounds = rounds_of(layer);
  for (unsigned rank = 0; rank < exchange.ranks(); ++rank) {
    RankParts parts(exchange, rank, {kCosts.processors - 2 * layer.processors, layer.processors}, layer.round_ns,
                    rounds);
    LayerOrder(parts, rounds.count).in_rounds();
  }
  return ended(exchange);
}

// With a ring, dispatch alone takes two launches, and so does combine: one launch would have to divide its processors.
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
