// Set-ups of one-shot, two-shot and pipelined all-reduces.
#include <fmt/format.h>

#include "sim/setup.hpp"

namespace weft::sim {

// Small enough to be searched within a bound: two data packs at most, and both banks used twice if the bound allows.
std::vector<Setup> small_all_reduce_setups() {
  const std::vector<CallSetup> one_pack{{.count = 8}, {.count = 7, .in_place = true}, {.count = 8}};
  const std::vector<CallSetup> one_pack_f32{{.count = 4}, {.count = 3, .in_place = true}, {.count = 4}};
  const std::vector<CallSetup> one_pack_i32{{.count = 2}, {.count = 1, .in_place = true}, {.count = 2}};
  const std::vector<CallSetup> two_packs{{.count = 16}, {.count = 13, .in_place = true}, {.count = 8}};
  const std::vector<CallSetup> two_packs_f32{{.count = 8}, {.count = 5, .in_place = true}, {.count = 4}};
  const std::vector<CallSetup> two_packs_i32{{.count = 4}, {.count = 3, .in_place = true}, {.count = 2}};
  constexpr Algorithm one = Algorithm::one_shot, two = Algorithm::two_shot, pipelined = Algorithm::pipelined;
  constexpr DataType bf16 = DataType::bf16, f16 = DataType::f16, f32 = DataType::f32, i32 = DataType::i32;
  constexpr Payload special = Payload::special;
  return {
      {.name = "one-shot-bf16", .algorithm = one, .type = bf16, .calls = one_pack, .bound = 3},
      {.name = "one-shot-bf16-torn8",
       .algorithm = one,
       .type = bf16,
       .atomic_bytes = 8,
       .payload = special,
       .calls = one_pack},
      {.name = "one-shot-f32-torn4",
       .algorithm = one,
       .type = f32,
       .atomic_bytes = 4,
       .payload = special,
       .calls = one_pack_f32},
      {.name = "one-shot-i32", .algorithm = one, .type = i32, .payload = special, .calls = one_pack_i32},
      {.name = "one-shot-i32-torn8", .algorithm = one, .type = i32, .atomic_bytes = 8, .calls = one_pack_i32},
      {.name = "two-shot-bf16", .algorithm = two, .type = bf16, .calls = two_packs},
      {.name = "two-shot-bf16-torn8",
       .algorithm = two,
       .type = bf16,
       .atomic_bytes = 8,
       .payload = special,
       .calls = two_packs},
      {.name = "two-shot-f32-torn4", .algorithm = two, .type = f32, .atomic_bytes = 4, .calls = two_packs_f32},
      {.name = "two-shot-i32", .algorithm = two, .type = i32, .calls = two_packs_i32},
      {.name = "two-shot-i32-torn8",
       .algorithm = two,
       .type = i32,
       .atomic_bytes = 8,
       .payload = special,
       .calls = two_packs_i32},
      {.name = "one-shot-cpu",
       .algorithm = one,
       .type = bf16,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = one_pack,
       .bound = 3},
      {.name = "two-shot-cpu",
       .algorithm = two,
       .type = f32,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = two_packs_f32,
       .bound = 3},
      {.name = "one-shot-replays", .algorithm = one, .type = bf16, .calls = replays(one_pack)},
      {.name = "two-shot-replays", .algorithm = two, .type = bf16, .calls = replays(two_packs)},
      {.name = "one-shot-released", .algorithm = one, .type = bf16, .calls = releases(one_pack, 1)},
      {.name = "two-shot-released-cpu",
       .algorithm = two,
       .type = f32,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = releases(two_packs_f32, 1)},
      {.name = "one-shot-max-i32",
       .algorithm = one,
       .type = i32,
       .op = ReduceOp::max,
       .payload = special,
       .calls = one_pack_i32},
      // Other operations, and types of other sizes.
      {.name = "one-shot-min-i64",
       .algorithm = one,
       .type = DataType::i64,
       .op = ReduceOp::min,
       .calls = {{.count = 1}, {.count = 1, .in_place = true}, {.count = 1}},
       .bound = 1},
      {.name = "two-shot-avg-u8",
       .algorithm = two,
       .type = DataType::u8,
       .op = ReduceOp::avg,
       .calls = {{.count = 16}, {.count = 13, .in_place = true}, {.count = 8}},
       .bound = 1},
      {.name = "pipelined-min-bf16",
       .algorithm = pipelined,
       .type = bf16,
       .op = ReduceOp::min,
       .payload = special,
       .calls = two_packs,
       .bound = 1},
      {.name = "two-shot-f16-torn8",
       .algorithm = two,
       .type = f16,
       .atomic_bytes = 8,
       .payload = special,
       .calls = two_packs},
      {.name = "pipelined-bf16", .algorithm = pipelined, .type = bf16, .calls = two_packs},
      // Blocks of two threads, so that a barrier of the block can be missing.
      {.name = "one-shot-threads", .algorithm = one, .calls = {{.count = 16, .grids = {{2, 2}}}}, .bound = 1},
      {.name = "two-shot-threads", .algorithm = two, .calls = {{.count = 16, .grids = {{2, 2}}}}, .bound = 1},
      {.name = "pipelined-threads", .algorithm = pipelined, .calls = {{.count = 16, .grids = {{2, 2}}}}, .bound = 1},
      {.name = "pipelined-f32-torn4", .algorithm = pipelined, .type = f32, .atomic_bytes = 4, .calls = two_packs_f32},
      {.name = "pipelined-cpu",
       .algorithm = pipelined,
       .type = f32,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = {{.count = 24}, {.count = 13, .in_place = true}},
       .pipeline_slots = 2},
      {.name = "pipelined-apart-small",
       .algorithm = pipelined,
       .type = f32,
       .calls = {{.count = 24, .grids = {{4, 1, true}, kSmall}}, {.count = 17, .grids = {{4, 1, true}}}},
       .bound = 1,
       .pipeline_slots = 2},
      {.name = "pipelined-wrap31",
       .algorithm = pipelined,
       .type = i32,
       .start_epoch = 0x7ffffffdu,
       .calls = {{.count = 5}, {.count = 0}, {.count = 8}, {.count = 3}, {.count = 8}}},
      {.name = "one-shot-sizes",
       .algorithm = one,
       .type = bf16,
       .calls = {{.count = 16}, {.count = 8}, {.count = 15}, {.count = 1}}},
      {.name = "one-shot-wrap31",
       .algorithm = one,
       .type = i32,
       .start_epoch = 0x7ffffffdu,
       .calls = {{.count = 2}, {.count = 0}, {.count = 2}, {.count = 2}, {.count = 2}}},
      {.name = "two-shot-wrap32",
       .algorithm = two,
       .type = i32,
       .start_epoch = 0xfffffffdu,
       .calls = {{.count = 2}, {.count = 0}, {.count = 2}, {.count = 2}, {.count = 2}}},
      {.name = "one-shot-empty-3",
       .algorithm = one,
       .type = bf16,
       .ranks = 3,
       .calls = {{.count = 8}, {.count = 0}, {.count = 8}},
       .bound = 2},
      {.name = "two-shot-short-3",
       .algorithm = two,
       .type = f32,
       .ranks = 3,
       .calls = {{.count = 4}, {.count = 8}, {.count = 3}},
       .bound = 2},
  };
}

// For random and PCT scheduling.
std::vector<Setup> large_all_reduce_setups() {
  constexpr Algorithm one = Algorithm::one_shot, two = Algorithm::two_shot;
  constexpr DataType bf16 = DataType::bf16, f16 = DataType::f16, f32 = DataType::f32, i32 = DataType::i32;
  // Grids change from call to call and differ between ranks.
  const auto calls = [](std::uint64_t pack) {
    return std::vector<CallSetup>{
        {.count = 3 * pack, .grids = {{3, 2}, kSmall}},
        {.count = 2 * pack + 1, .grids = {kSmall, {2, 2}}, .in_place = true},
        {.count = 0, .grids = {{3, 1}, kSmall}},
        {.count = 5 * pack - 1, .grids = {{2, 3}, {3, 2}}, .misaligned = true},
        {.count = 1, .grids = {kSmall, {3, 2}}, .in_place = true},
        {.count = 4 * pack, .grids = {{3, 2}, {2, 2}}},
    };
  };
  const std::vector<std::vector<unsigned>> crossed{{0, 1, 2}, {2, 0}};
  const std::vector<CallSetup> of_groups{{.count = 9, .group = 0}, {.count = 17, .group = 1}, {.count = 8, .group = 0},
                                         {.count = 3, .group = 1}, {.count = 16, .group = 0}, {.count = 8, .group = 1}};
  std::vector<Setup> setups;
  for (const Algorithm algorithm : {one, two, Algorithm::pipelined}) {
    const std::string a{name(algorithm)};
    for (const unsigned ranks : {2u, 3u, 4u}) {
      const auto add = [&](const char* wire, Setup setup) {
        setup.name = fmt::format("{}-{}-ranks{}", a, wire, ranks);
        setup.algorithm = algorithm;
        setup.ranks = ranks;
        setups.push_back(std::move(setup));
      };
      add("bf16-grids", {.type = bf16, .payload = Payload::special, .calls = calls(8)});
      add("f32-torn4-grids", {.type = f32,
                              .atomic_bytes = 4,
                              .start_epoch = 0xfffffffdu,
                              .payload = Payload::rounding,
                              .calls = calls(4)});
      add("f16-torn8-grids", {.type = f16, .atomic_bytes = 8, .payload = Payload::rounding, .calls = calls(8)});
      add("bf16-max-grids", {.type = bf16, .op = ReduceOp::max, .payload = Payload::special, .calls = calls(8)});
      add("bf16-replays", {.type = bf16, .start_epoch = 0xfffffffeu, .calls = replays(calls(8))});
      add("f32-released", {.type = f32, .calls = releases(calls(4), static_cast<int>(ranks) - 1)});
      add("i32-torn8-grids",
          {.type = i32, .atomic_bytes = 8, .start_epoch = 0x7ffffffdu, .payload = Payload::special, .calls = calls(2)});
    }
    setups.push_back({.name = a + "-cpu-ranks4",
                      .algorithm = algorithm,
                      .type = bf16,
                      .ranks = 4,
                      .atomic_bytes = 8,
                      .one_thread = true,
                      .payload = Payload::special,
                      .calls = calls(8)});
    setups.push_back(
        {.name = a + "-groups-in-turn", .algorithm = algorithm, .ranks = 3, .groups = crossed, .calls = of_groups});
    setups.push_back({.name = a + "-groups-side-by-side",
                      .algorithm = algorithm,
                      .ranks = 3,
                      .groups = crossed,
                      .side_by_side = true,
                      .payload = Payload::special,
                      .calls = of_groups});
  }
  // All ranks reject their second call, some of them in two threads, and then make it.
  const CallSetup rejection{.grids = {{1, 2}, {1, 1}}, .moving = Moving::rejection};
  for (const bool one_thread : {false, true}) {
    setups.push_back({.name = fmt::format("rejections{}", one_thread ? "-cpu" : ""),
                      .ranks = 3,
                      .atomic_bytes = 8,
                      .one_thread = one_thread,
                      .start_epoch = 0xffffffffu,
                      .calls = {{.count = 9}, rejection, rejection, {.count = 9}, rejection, {.count = 5}},
                      .deadline_ns = 1'000'000});
  }
  // Messages of many chunks through few slots.
  setups.push_back(
      {.name = "pipelined-credits",
       .algorithm = Algorithm::pipelined,
       .calls = {{.count = 160, .grids = {{2, 2}}}, {.count = 103, .grids = {{2, 3}, {2, 1}}, .in_place = true}},
       .pipeline_slots = 2,
       .pipeline_packs = 2});
  // Some blocks move and others reduce, on both ranks or on one; two blocks that move share three slots.
  setups.push_back({.name = "pipelined-apart",
                    .algorithm = Algorithm::pipelined,
                    .calls = {{.count = 224, .grids = {{6, 2, true}}},
                              {.count = 103, .grids = {{9, 1, true}, {2, 2}}, .in_place = true},
                              {.count = 160, .grids = {{2, 1}, {6, 2, true}}, .in_place = true}},
                    .pipeline_slots = 3,
                    .pipeline_packs = 2});
  setups.push_back({.name = "pipelined-apart-ranks3",
                    .algorithm = Algorithm::pipelined,
                    .ranks = 3,
                    .start_epoch = 0xffffffffu,
                    .calls = {{.count = 192, .grids = {{4, 1, true}, {6, 2, true}}},
                              {.count = 150, .grids = {{2, 1}, {4, 1, true}}}},
                    .pipeline_slots = 4});
  // Chunks of several batches for each thread, with packs left over.
  setups.push_back({.name = "pipelined-batches",
                    .algorithm = Algorithm::pipelined,
                    .calls = {{.count = 2 * 23 * 8, .grids = {{2, 1}, {4, 1, true}}},
                              {.count = 2 * 30 * 8, .grids = {{4, 1, true}, {2, 2}}, .in_place = true}},
                    .pipeline_slots = 2,
                    .pipeline_packs = 15});
  setups.push_back({.name = "pipelined-credits-ranks3",
                    .algorithm = Algorithm::pipelined,
                    .ranks = 3,
                    .start_epoch = 0xffffffffu,
                    .calls = {{.count = 144, .grids = {{3, 2}, {2, 2}}}, {.count = 100, .grids = {{2, 1}, {3, 2}}}}});
  return setups;
}

}  // namespace weft::sim
