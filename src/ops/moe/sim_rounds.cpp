// Calls in rounds: what a dispatch has brought behind each round, and what the experts have made before each round of a
// combine. A round that is early or late would otherwise go unseen, as the last one makes everything right.
#include <fmt/format.h>

#include <cstring>

#include "ops/moe/rounds.hpp"
#include "ops/moe/sim_arrivals.hpp"

namespace weft::sim {

detail::Rounds rounds_of(const CallSetup& spec, std::uint32_t most_local) {
  if (spec.rounds.empty()) return {};
  const auto count = static_cast<std::uint32_t>(spec.rounds.size());
  return detail::divide(most_local, {.count = count, .experts = spec.rounds.data()});
}

// Of a launch behind the first one of its call: as in detail::Turn.
unsigned AllReduceProgram::turn_of(const CallSetup& spec) const {
  if (spec.moving != Moving::combine) return 1 + spec.round;
  const std::size_t rounds = setup_.calls[static_cast<std::size_t>(spec.of)].rounds.size();
  return spec.phases.has(0) ? spec.round : static_cast<unsigned>(std::max<std::size_t>(rounds, 1));
}

// `piece`: of the row of expert `local` of this rank. Rank-major, a row is several experts'.
void AllReduceProgram::add_to_round(unsigned call, unsigned rank, std::uint32_t local, Tensors::Piece piece) {
  const detail::Rounds rounds = rounds_of(setup_.calls[call], plan_of(world_).shape(rank).most_local);
  std::uint32_t round = 0;
  while (rounds.experts(round).end <= local) ++round;
  Tensors& t = tensors(call, rank);
  t.rounds.resize(rounds.count);
  t.rounds[round].push_back(std::move(piece));
}

// The experts of rounds behind `current` have made nothing yet.
void AllReduceProgram::hide_rounds_behind(const Tensors& t, std::size_t current, std::vector<std::uint32_t>& words) {
  for (std::size_t round = current + 1; round < t.rounds.size(); ++round) {
    for (const Tensors::Piece& piece : t.rounds[round]) {
      std::memset(reinterpret_cast<std::byte*>(words.data()) + piece.at, 0x5a, piece.bytes.size());
    }
  }
}

void AllReduceProgram::begin_round(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.calls[call];
  if (spec.moving != Moving::combine || spec.round == 0) return;
  Tensors& t = tensors(static_cast<unsigned>(spec.of), rank);
  if (spec.round >= t.rounds.size()) return;
  for (const Tensors::Piece& piece : t.rounds[spec.round]) {
    std::memcpy(reinterpret_cast<std::byte*>(t.memory.data()) + piece.at, piece.bytes.data(), piece.bytes.size());
  }
  hide_rounds_behind(t, spec.round, t.memory);
}

void AllReduceProgram::end_round(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.calls[call];
  if (spec.moving != Moving::dispatch || spec.phases.has(0) || setup_.faults.any()) return;
  const Tensors& t = tensors(static_cast<unsigned>(spec.of), rank);
  for (std::size_t round = 0; round <= spec.round && round < t.rounds.size(); ++round) {
    for (const Tensors::Piece& piece : t.rounds[round]) {
      const std::byte* const found = reinterpret_cast<const std::byte*>(t.memory.data()) + piece.at;
      if (std::memcmp(found, piece.bytes.data(), piece.bytes.size()) == 0) continue;
      host_saw_ = fmt::format("call {} on rank {}: round {} has ended without a row of round {}", call, rank,
                              spec.round, round);
      return;
    }
  }
}

}  // namespace weft::sim
