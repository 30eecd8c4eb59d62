// Experts that move between the places of an exchange (MoeExchange::set_experts). The right bits are those of an
// exchange whose experts are the places, in even blocks: the caller chooses among them by the rule.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "support/moe_batches.hpp"

namespace weft::test {

using ExpertPlaces = std::vector<std::int32_t>;  // a map: [ranks, places]

struct MovingExperts {
  MoeExchangeArgs with;  // two maps: numbers 0 and 1
  MoeCase of_places;     // tokens of a call, of the exchange whose experts are the places
  std::uint32_t ranks;

  // Map `number`. Each has replicas on other ranks, two on one rank, and an empty place.
  ExpertPlaces map(std::uint32_t number) const;
  std::vector<std::int32_t> maps(std::uint32_t first, std::uint32_t second) const;
  // A call that follows map `number`.
  PreparedMoe prepared(std::uint32_t number, std::uint32_t seed) const;
};

// In every layout, by slots and by a ring.
std::vector<MovingExperts> moving_experts(std::uint32_t ranks);

// A CPU rank's memory for calls of the exchange whose experts move, with the ids that its caller gives.
class MovingSide : public CpuMoe {
 public:
  MovingSide(const MoeExchange& of_places, const PreparedMoe& p, std::uint32_t rank);
  void fill(const PreparedMoe& p);
  DispatchArgs dispatch(std::uint32_t map);

 private:
  const PreparedMoe* p_;
  std::uint32_t rank_;
};
void exchange_and_check(const MoeExchange& moving, MovingSide& side, std::uint32_t map);

// Runs `body` on CPU ranks with an exchange whose experts move, and the one whose experts are the places.
void on_moving_exchanges(
    const MovingExperts& of,
    const std::function<void(MoeExchange& moving, const MoeExchange& of_places, std::uint32_t rank)>& body);

}  // namespace weft::test
