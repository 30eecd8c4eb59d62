// Set-ups of messages between two ranks.
#include <fmt/format.h>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

CallSetup messages(std::vector<Letter> letters, std::vector<Grid> grids = {Grid{}}) {
  return {.grids = std::move(grids), .moving = Moving::messages, .letters = std::move(letters)};
}

}  // namespace

std::vector<Setup> small_message_setups() {
  const std::vector<CallSetup> one_way{messages({{0, 1, 8}}), messages({{0, 1, 5}}), messages({{0, 1, 8}})};
  const std::vector<CallSetup> there_and_back{messages({{0, 1, 8}}), messages({{1, 0, 8}}), messages({{0, 1, 3}})};
  // More chunks than slots: the sender waits for credits.
  const std::vector<CallSetup> chunks{messages({{0, 1, 24}}), messages({{0, 1, 16}})};
  // Nothing orders the two ways: the long message to rank 0 waits for slots, and its receive comes a call later.
  const std::vector<CallSetup> apart{messages({{0, 1, 64}, {1, 0, 24, true, false}}, {kSmall, {3, 1}}),
                                     messages({{1, 0, 24, false, true, 0}})};
  std::vector<Setup> setups{
      {.name = "messages-one-way", .calls = one_way, .pipeline_slots = 1},
      {.name = "messages-there-and-back", .payload = Payload::special, .calls = there_and_back, .pipeline_slots = 1},
      {.name = "messages-chunks", .calls = chunks, .pipeline_slots = 2},
      {.name = "messages-empty", .calls = {messages({{0, 1, 0}}), messages({{0, 1, 8}})}, .pipeline_slots = 1},
      {.name = "messages-cpu",
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = {messages({{0, 1, 24}, {1, 0, 16}}), messages({{1, 0, 8}, {0, 1, 8}})},
       .pipeline_slots = 2},
      // A block that waits for one message moves another one meanwhile.
      {.name = "messages-cpu-apart", .atomic_bytes = 8, .one_thread = true, .calls = apart, .pipeline_slots = 2},
      // A queue, answered one by one and in another order: its receives before the sends.
      {.name = "messages-cpu-answered",
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = {messages({{0, 1, 8}, {0, 1, 32, true, false}, {1, 0, 24, false, true, 2}}),
                 messages({{0, 1, 32, false, true, 0}}), messages({{1, 0, 24, true, false}})},
       .pipeline_slots = 2},
      {.name = "messages-queue-threads",
       .calls = {messages({{0, 1, 24}, {0, 1, 0}, {0, 1, 40}, {1, 0, 8}}, {{3, 2}, {2, 2}})},
       .bound = 1,
       .pipeline_slots = 2},
      {.name = "messages-to-itself", .calls = {messages({{0, 0, 16}, {0, 1, 8}})}, .pipeline_slots = 1},
      {.name = "messages-lanes",
       .calls = {messages({{0, 1, 32}}, {{3, 1}, {2, 1}}), messages({{0, 1, 8}})},
       .bound = 1,
       .pipeline_slots = 2},
      // Blocks of two threads, so that a barrier of the block can be missing.
      {.name = "messages-threads",
       .calls = {messages({{0, 1, 32}}, {{2, 2}})},
       .bound = 1,
       .pipeline_slots = 1,
       .pipeline_packs = 2},
      {.name = "messages-two-ways-threads",
       .calls = {messages({{0, 1, 16}, {1, 0, 16}}, {{2, 2}})},
       .bound = 1,
       .pipeline_slots = 1,
       .pipeline_packs = 2}};
  for (const std::uint32_t epoch : {0x7ffffffeu, 0xfffffffeu}) {
    setups.push_back({.name = fmt::format("messages-wrap{}", epoch == 0x7ffffffeu ? 31 : 32),
                      .type = DataType::i32,
                      .start_epoch = epoch,
                      .calls = {messages({{0, 1, 8}}), messages({{0, 1, 4}}), messages({{0, 1, 4}})},
                      .pipeline_slots = 1});
  }
  return setups;
}

std::vector<Setup> large_message_setups() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    std::vector<Letter> ring, all, queues;
    for (unsigned from = 0; from < ranks; ++from) {
      ring.push_back({from, (from + 1) % ranks, 40 + 9 * from});
      for (const std::uint64_t count : {7, 40, 16}) queues.push_back({from, (from + 1) % ranks, count});
      for (unsigned to = 0; to < ranks; ++to) all.push_back({from, to, 8 * (from + to) + 5});
    }
    const std::vector<CallSetup> calls{messages(ring, {{3, 2}, kSmall, {5, 1}}), messages({{0, ranks - 1, 70}}),
                                       messages(all, {kSmall, {7, 1}, {3, 2}}),
                                       messages({{ranks - 1, 0, 33}, {0, 1, 0}}, {{5, 2}, {2, 1}}),
                                       messages(queues, {{3, 2}, {5, 1}, kSmall})};
    for (const bool one_thread : {false, true}) {
      setups.push_back({.name = fmt::format("messages-ranks{}{}", ranks, one_thread ? "-cpu" : ""),
                        .ranks = ranks,
                        .atomic_bytes = 8,
                        .one_thread = one_thread,
                        .start_epoch = 0xfffffff0u,
                        .payload = Payload::special,
                        .calls = calls,
                        .pipeline_slots = 2,
                        .pipeline_packs = 2});
    }
    setups.push_back({.name = fmt::format("messages-replays-ranks{}", ranks),
                      .ranks = ranks,
                      .calls = replays({calls[0], calls[3]}),
                      .pipeline_slots = 4});
  }
  // Between collectives of the same ranks, which have a region of their own.
  setups.push_back({.name = "messages-between-collectives",
                    .ranks = 2,
                    .groups = {{0, 1}, {0, 1}},
                    .calls = {{.count = 9, .moving = Moving::all_gather},
                              {.group = 1, .moving = Moving::messages, .letters = {{0, 1, 40}, {1, 0, 8}}},
                              {.count = 16},
                              {.group = 1, .moving = Moving::messages, .letters = {{1, 0, 40}}}},
                    .pipeline_slots = 2});
  return setups;
}

}  // namespace weft::sim
