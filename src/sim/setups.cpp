#include <fmt/format.h>

#include "sim/setup.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

constexpr Grid kSmall{.blocks = 2, .threads = 1};

// Adds a replay of an earlier call.
void replay(std::vector<CallSetup>& calls, int recorded, int only = -1) {
  CallSetup again = calls[static_cast<std::size_t>(recorded)];
  again.replays = recorded;
  again.only = only;
  calls.push_back(std::move(again));
}

// Recordings of the first and the second call, mixed with eager calls.
std::vector<CallSetup> replays(const std::vector<CallSetup>& eager) {
  std::vector<CallSetup> calls{eager[0], eager[1]};
  for (std::size_t i = 2; i <= eager.size(); ++i) {
    replay(calls, 0);
    replay(calls, 1);
    if (i < eager.size()) calls.push_back(eager[i]);
  }
  return calls;
}

// The windows come back where they were, then elsewhere. A recording of the first call is replayed meanwhile, between
// the two good again, and stale ever after, which the last rank alone tries.
std::vector<CallSetup> releases(const std::vector<CallSetup>& eager, int last_rank) {
  const CallSetup release{.act = Act::release};
  std::vector<CallSetup> calls{eager[0], release};
  replay(calls, 0);
  calls.push_back({.act = Act::acquire});
  replay(calls, 0);
  calls.insert(calls.end(), {eager[1], release, {.act = Act::acquire_elsewhere}, eager[0]});
  replay(calls, 0, last_rank);
  calls.push_back(eager[1]);
  return calls;
}

// Small enough to be searched within a bound: two data packs at most, both banks used twice where the bound allows.
std::vector<Setup> small_setups() {
  const std::vector<CallSetup> one_pack{{.count = 8}, {.count = 7, .in_place = true}, {.count = 8}};
  const std::vector<CallSetup> one_pack_f32{{.count = 4}, {.count = 3, .in_place = true}, {.count = 4}};
  const std::vector<CallSetup> one_pack_i32{{.count = 2}, {.count = 1, .in_place = true}, {.count = 2}};
  const std::vector<CallSetup> two_packs{{.count = 16}, {.count = 13, .in_place = true}, {.count = 8}};
  const std::vector<CallSetup> two_packs_f32{{.count = 8}, {.count = 5, .in_place = true}, {.count = 4}};
  const std::vector<CallSetup> two_packs_i32{{.count = 4}, {.count = 3, .in_place = true}, {.count = 2}};
  constexpr Algorithm one = Algorithm::one_shot, two = Algorithm::two_shot, bulk = Algorithm::bulk;
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
      {.name = "two-shot-f16-torn8",
       .algorithm = two,
       .type = f16,
       .atomic_bytes = 8,
       .payload = special,
       .calls = two_packs},
      {.name = "bulk-bf16", .algorithm = bulk, .type = bf16, .calls = two_packs},
      // Blocks of two threads, so that a barrier of the block can be missing.
      {.name = "one-shot-threads", .algorithm = one, .calls = {{.count = 16, .grids = {{2, 2}}}}, .bound = 1},
      {.name = "two-shot-threads", .algorithm = two, .calls = {{.count = 16, .grids = {{2, 2}}}}, .bound = 1},
      {.name = "bulk-threads", .algorithm = bulk, .calls = {{.count = 16, .grids = {{2, 2}}}}, .bound = 1},
      {.name = "bulk-f32-torn4", .algorithm = bulk, .type = f32, .atomic_bytes = 4, .calls = two_packs_f32},
      {.name = "bulk-cpu",
       .algorithm = bulk,
       .type = f32,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = {{.count = 24}, {.count = 13, .in_place = true}},
       .bulk_slots = 2},
      {.name = "bulk-wrap31",
       .algorithm = bulk,
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
std::vector<Setup> large_setups() {
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
  for (const Algorithm algorithm : {one, two, Algorithm::bulk}) {
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
  // Messages of many chunks through few slots.
  setups.push_back(
      {.name = "bulk-credits",
       .algorithm = Algorithm::bulk,
       .calls = {{.count = 160, .grids = {{2, 2}}}, {.count = 103, .grids = {{2, 3}, {2, 1}}, .in_place = true}},
       .bulk_slots = 2,
       .bulk_packs = 2});
  setups.push_back({.name = "bulk-credits-ranks3",
                    .algorithm = Algorithm::bulk,
                    .ranks = 3,
                    .start_epoch = 0xffffffffu,
                    .calls = {{.count = 144, .grids = {{3, 2}, {2, 2}}}, {.count = 100, .grids = {{2, 1}, {3, 2}}}}});
  return setups;
}

// Gathers and scatters: one small set-up for each, by lines or sentinels and in chunks; then everything in turns.
std::vector<Setup> small_moves() {
  struct Kind {
    const char* name;
    Moving moving;
    std::vector<std::int32_t> counts = {};
  };
  const Kind kinds[] = {{"all-gather", Moving::all_gather},
                        {"all-to-all", Moving::all_to_all},
                        {"broadcast", Moving::broadcast},
                        {"reduce-scatter", Moving::reduce_scatter},
                        {"all-gather-v", Moving::all_gather_v, {1, 0}},
                        {"reduce-scatter-v", Moving::reduce_scatter_v, {0, 1}}};
  std::vector<Setup> setups;
  for (const Kind& kind : kinds) {
    const auto add = [&](const char* how, Setup setup, std::uint64_t count, bool flows) {
      setup.name = fmt::format("{}-{}", kind.name, how);
      for (const std::uint64_t elements : {count, count - 1, count}) {
        setup.calls.push_back({.count = elements, .moving = kind.moving, .flows = flows, .counts = kind.counts});
      }
      setups.push_back(std::move(setup));
    };
    add("one-go", {}, 8, false);
    add("one-go-torn8", {.atomic_bytes = 8, .payload = Payload::special}, 8, false);
    add("one-go-cpu", {.atomic_bytes = 8, .one_thread = true}, 8, false);
    add("chunks", {.bulk_slots = 2}, 8, true);
  }
  for (const std::uint32_t epoch : {0x7ffffffeu, 0xfffffffeu}) {
    setups.push_back({.name = fmt::format("all-gather-wrap{}", epoch == 0x7ffffffeu ? 31 : 32),
                      .type = DataType::i32,
                      .start_epoch = epoch,
                      .calls = {{.count = 2, .moving = Moving::all_gather},
                                {.count = 2, .moving = Moving::all_gather, .flows = true},
                                {.count = 2, .moving = Moving::all_gather}}});
  }
  setups.push_back({.name = "all-gather-threads",
                    .calls = {{.count = 16, .grids = {{2, 2}}, .moving = Moving::all_gather, .flows = true}},
                    .bound = 1,
                    .bulk_slots = 2});
  setups.push_back({.name = "barriers",
                    .ranks = 3,
                    .calls = {{.moving = Moving::barrier}, {.moving = Moving::barrier}, {.moving = Moving::barrier}}});
  return setups;
}

std::vector<Setup> large_moves() {
  std::vector<Setup> setups;
  for (const unsigned ranks : {2u, 3u, 4u}) {
    const auto counts = [&](std::int32_t first, std::int32_t rest) {
      std::vector<std::int32_t> all(ranks, rest);
      all[0] = first;
      return all;
    };
    const std::vector<CallSetup> mixed{
        {.count = 30, .grids = {{3, 2}, kSmall}, .moving = Moving::all_gather},
        {.count = 20, .grids = {kSmall, {2, 2}}, .moving = Moving::all_gather, .flows = true},
        {.count = 9, .grids = {{3, 1}, kSmall}, .moving = Moving::reduce_scatter},
        {.count = 12, .grids = {{2, 1}, {3, 2}}, .moving = Moving::all_gather_v, .counts = counts(2, 0)},
        {.count = 17, .grids = {{2, 1}, {3, 2}}},
        {.count = 16, .grids = {{3, 2}, {2, 2}}, .moving = Moving::reduce_scatter, .flows = true},
        {.count = 10, .grids = {{3, 2}, {2, 2}}, .moving = Moving::all_to_all, .flows = true},
        {.count = 5, .grids = {kSmall}, .moving = Moving::reduce_scatter_v, .counts = counts(0, 2)},
    };
    for (const int unit : {8, 16}) {
      setups.push_back({.name = fmt::format("moves-mixed-torn{}-ranks{}", unit, ranks),
                        .ranks = ranks,
                        .atomic_bytes = unit,
                        .start_epoch = unit == 8 ? 0x7ffffffcu : 0xfffffffcu,
                        .payload = Payload::special,
                        .calls = mixed});
    }
    setups.push_back({.name = fmt::format("moves-i32-ranks{}", ranks),
                      .type = DataType::i32,
                      .ranks = ranks,
                      .payload = Payload::special,
                      .calls = {{.count = 11, .grids = {{3, 2}, kSmall}, .moving = Moving::reduce_scatter},
                                {.count = 7, .moving = Moving::broadcast},
                                {.count = 9, .moving = Moving::all_to_all},
                                {.count = 9, .moving = Moving::reduce_scatter, .flows = true}}});
    for (const DataType type : {DataType::f16, DataType::f32}) {
      setups.push_back({.name = fmt::format("moves-{}-ranks{}", name(type), ranks),
                        .type = type,
                        .ranks = ranks,
                        .payload = Payload::rounding,
                        .calls = {{.count = 11, .grids = {{3, 2}, kSmall}, .moving = Moving::reduce_scatter},
                                  {.count = 16, .moving = Moving::reduce_scatter, .flows = true}}});
    }
    setups.push_back({.name = fmt::format("moves-replays-ranks{}", ranks),
                      .ranks = ranks,
                      .start_epoch = 0xfffffffeu,
                      .calls = replays({mixed[2], mixed[1], mixed[3], mixed[6]})});
    setups.push_back({.name = fmt::format("moves-released-ranks{}", ranks),
                      .ranks = ranks,
                      .calls = releases({mixed[0], mixed[2]}, static_cast<int>(ranks) - 1)});
    setups.push_back({.name = fmt::format("moves-cpu-ranks{}", ranks),
                      .ranks = ranks,
                      .atomic_bytes = 8,
                      .one_thread = true,
                      .payload = Payload::special,
                      .calls = mixed});
  }
  const std::vector<CallSetup> of_groups{
      {.count = 9, .group = 0, .moving = Moving::all_gather},
      {.count = 8, .group = 1, .moving = Moving::reduce_scatter},
      {.count = 16, .group = 0, .moving = Moving::reduce_scatter, .flows = true},
      {.count = 17, .group = 1, .moving = Moving::all_to_all, .flows = true},
      {.count = 3, .group = 1, .moving = Moving::broadcast},
  };
  for (const bool side_by_side : {false, true}) {
    setups.push_back({.name = side_by_side ? "moves-groups-side-by-side" : "moves-groups-in-turn",
                      .ranks = 3,
                      .groups = {{0, 1, 2}, {2, 0}},
                      .side_by_side = side_by_side,
                      .payload = Payload::special,
                      .calls = of_groups});
  }
  // More blocks than slots allow.
  setups.push_back({.name = "reduce-scatter-crowded",
                    .calls = {{.count = 48, .grids = {{4, 1}}, .moving = Moving::reduce_scatter, .flows = true}},
                    .bulk_slots = 2});
  // Many chunks through few slots, one sender busier than the others.
  setups.push_back(
      {.name = "moves-credits",
       .ranks = 3,
       .calls =
           {{.count = 40, .grids = {{3, 2}, {2, 1}}, .moving = Moving::all_gather, .flows = true},
            {.count = 8, .grids = {{2, 1}, {3, 2}}, .moving = Moving::all_gather_v, .flows = true, .counts = {5, 0, 1}},
            {.count = 40, .grids = {{2, 2}}, .moving = Moving::reduce_scatter, .flows = true}},
       .bulk_slots = 2,
       .bulk_packs = 2});
  return setups;
}

}  // namespace

const std::vector<Setup>& all_setups() {
  static const std::vector<Setup> setups = [] {
    std::vector<Setup> all = small_setups();
    const auto add = [&](std::vector<Setup> setups) {
      for (Setup& setup : setups) all.push_back(std::move(setup));
    };
    add(small_moves());
    add(small_moe_setups());
    for (Setup& setup : all) setup.small = true;
    add(large_setups());
    add(large_moves());
    add(large_moe_setups());
    return all;
  }();
  return setups;
}

const Setup& find_setup(const std::string& name) {
  for (const Setup& setup : all_setups()) {
    if (setup.name == name) return setup;
  }
  throw Error(Errc::invalid_argument,
              fmt::format("protocol set-up \"{}\" is unknown; weft simulate --list names all", name));
}

}  // namespace weft::sim
