// Cases of dispatch and combine, the same for CPU ranks and GPU ranks.
#pragma once

#include <random>
#include <utility>
#include <vector>

#include "support/moe_cases.hpp"
#include "support/world.hpp"

namespace weft::test {

// Calls of one exchange, one after the other: their MoeExchangeArgs are equal.
using Batch = std::vector<MoeCase>;
MoeExchangeArgs small_exchange();
std::vector<Batch> every_kind_of_routing(std::uint32_t ranks);
std::vector<Batch> rows_of_every_type(std::uint32_t ranks);
// Numbers of tokens on both sides of those from which on blocks count entries in tallies (ops/moe/exchange_grid.cpp).
std::vector<Batch> entries_in_tallies(std::uint32_t ranks);
// Rows that go several times round the stage of a warp on GPUs (team/team.hpp).
std::vector<Batch> rows_of_many_pieces(std::uint32_t ranks);
// Rows of every type with one to four payloads: of a word, of a cut pack, of many packs, and behind scales.
std::vector<Batch> rows_with_payloads(std::uint32_t ranks);
// Each batch without its cast, with payloads of a word and of a cut pack.
std::vector<Batch> with_payloads(std::vector<Batch> batches);
// The batches of entries_in_tallies() that have no cast: without their payloads, the others differ in the length of
// rows alone.
std::vector<Batch> payloads_of_entries_in_tallies(std::uint32_t ranks);
std::vector<Batch> casts_on_the_way(std::uint32_t ranks);
std::vector<Batch> experts_where_the_caller_wants(std::uint32_t ranks);
std::vector<Batch> rows_without_room();
std::vector<Batch> sums_without_weights(std::uint32_t ranks);
// One of two ranks has all experts. One expert gets 7 rows, aligned to 4.
MoeCase rows_and_a_pad(std::uint32_t capacity);
// One of two ranks has all experts and no room for all rows, or for the last row's padding: an error.
std::vector<MoeCase> more_rows_than_room();
// By slots and by a ring: an exchange with replicas, and one whose experts are the replicas. In the latter the caller
// chooses among them by the rule. `call` uses the latter, and Tokens::given has the ids for the former.
struct ReplicaCase {
  MoeExchangeArgs with;
  MoeCase call;
};
std::vector<ReplicaCase> replicas_in_turn(std::uint32_t ranks);
// Rounds ask for a place of the ring for each token.
void serve_rounds(ReplicaCase& replicas);
// Rows of two ranks with every value of 16 bits at every place of a pack.
std::vector<PreparedMoe> all_bit_patterns();
// Sums of special values, with and without special weights.
std::vector<Batch> sums_of_special_values(std::uint32_t ranks);
// Two ranks' tokens of one expert each. Their rows have every value of 16 bits, and pairs of special ones, at every
// place of a pack. `results` are the experts' outputs, with the NaN of sums (ReduceOp::sum) for any NaN.
std::vector<PreparedMoe> results_of_all_bit_patterns();
// Calls in every layout. Calls with even numbers have the same tokens each, and so have those with odd numbers: a graph
// of the first of each kind serves all of that kind.
std::vector<Batch> routings_for_two_graphs(std::uint32_t ranks);
// Calls in every layout, by slots and by a ring. The first has the largest number of tokens, and in the others fewer
// tokens name experts. A graph of the first serves all.
std::vector<std::vector<PreparedMoe>> fewer_tokens_than_recorded(std::uint32_t ranks);
// Calls in every layout, of two exchanges side by side that differ in row, top-k, weights and tokens.
std::vector<std::pair<Batch, Batch>> batches_that_differ(std::uint32_t ranks);
// Each batch unchanged, with contiguous experts (room for all rows) and with rows by rank, with holes and without. The
// latter take no slots, and not so many experts.
std::vector<Batch> in_every_layout(const std::vector<Batch>& batches, std::uint32_t ranks);
// The batches whose rows may come in several rounds.
std::vector<Batch> in_rounds(std::vector<Batch> batches);
// Each batch through a ring of kRingPlaces places.
inline constexpr std::uint32_t kRingPlaces = 32;
std::vector<Batch> on_ring(std::vector<Batch> batches);
// The same, of exchanges whose dispatches can be made again.
std::vector<Batch> repeatable(std::vector<Batch> batches);
// Other rows of the same routing.
PreparedMoe with_other_rows(PreparedMoe p);
// Each batch through a ring that has a place for every token.
std::vector<Batch> on_whole_ring(std::vector<Batch> batches);
// The batches, of exchanges with a ring, with slots for all tokens of calls with even numbers, which take them.
std::vector<Batch> with_slots(std::vector<Batch> batches);
// Calls of up to 100 tokens by a ring, between calls of up to 8 by slots.
Batch few_and_many_tokens(std::uint32_t ranks);
// The batches whose exchanges combine weighs, with the weights at combine. Results stay the same.
std::vector<Batch> weighed_late(const std::vector<Batch>& batches);
// For a ring: up to 100 tokens, more or fewer on other ranks.
Batch more_tokens_than_places(std::uint32_t ranks);

// Makes the calls of every batch on CPU ranks, `rounds` times over, on an exchange of its own.
void exchange_and_check(const std::vector<Batch>& batches, std::uint32_t ranks,
                        const Config& config = smallest_buffers(), int rounds = 2);

// Calls of routings_for_two_graphs() by a side of support/move_recordings.hpp. They are recorded once for even numbers
// and once for odd ones, with eager calls in the same memory. `call(moe, p)` dispatches and combines, `check(moe, p)`
// looks at both.
template <class Side, class Moe, class Call, class Check>
void exchange_other_routings(const Side& side, const std::vector<PreparedMoe>& prepared, Moe& even, Moe& odd,
                             const Call& call, const Check& check) {
  const auto of_even = side.record([&] { call(even, prepared[0]); });
  const auto of_odd = side.record([&] { call(odd, prepared[1]); });
  std::mt19937 random(7);  // the same on every rank
  for (int turn = 0; turn < 30; ++turn) {
    const std::size_t i = random() % prepared.size();
    Moe& moe = i % 2 == 0 ? even : odd;
    moe.fill(prepared[i]);
    if (random() % 3 == 0) {
      call(moe, prepared[i]);
    } else {
      side.replay(i % 2 == 0 ? of_even : of_odd);
    }
    check(moe, prepared[i]);
  }
}

}  // namespace weft::test
