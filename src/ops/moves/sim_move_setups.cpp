// Set-ups of gathers and scatters.
#include <fmt/format.h>
#include <utility>

#include "sim/setup.hpp"

namespace weft::sim {

// One small set-up for each kind, by lines or sentinels and in chunks; then all kinds in turn.
std::vector<Setup> small_move_setups() {
  struct Kind {
    const char* name;
    Moving moving;
    std::vector<std::int32_t> counts = {};
  };
  const Kind kinds[] = {{"all-gather", Moving::all_gather},
                        {"all-to-all", Moving::all_to_all},
                        {"broadcast", Moving::broadcast},
                        {"reduce-scatter", Moving::reduce_scatter},
                        {"reduce", Moving::reduce},
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
    const auto add_symmetric = [&](const char* how, Setup setup) {
      setup.name = fmt::format("{}-{}", kind.name, how);
      setup.symmetric_bytes = 128;
      for (const std::uint64_t elements : {8, 16, 8}) {
        setup.calls.push_back({.count = elements,
                               .moving = kind.moving,
                               .flows = true,
                               .symmetric = true,
                               .counts = kind.counts,
                               .second = 8});
      }
      setups.push_back(std::move(setup));
    };
    add("one-go", {}, 8, false);
    add("one-go-torn8", {.atomic_bytes = 8, .payload = Payload::special}, 8, false);
    add("one-go-cpu", {.atomic_bytes = 8, .one_thread = true}, 8, false);
    add("chunks", {.pipeline_slots = 2}, 8, true);
    if (std::string_view(kind.name).starts_with("reduce")) continue;  // sums
    add_symmetric("symmetric", {.payload = Payload::special});
    add_symmetric("symmetric-cpu", {.atomic_bytes = 8, .one_thread = true});
  }
  // Whole packs: a thread loads its first pack before it knows the counts.
  setups.push_back(
      {.name = "all-gather-v-whole",
       .atomic_bytes = 8,
       .calls = {{.count = 8, .grids = {{2, 2}}, .moving = Moving::all_gather_v, .counts = {1, 1}, .second = 8}},
       .bound = 1});
  // One tensor, which has an instance of its own.
  const auto alone = [](bool flows, bool symmetric) {
    return CallSetup{.count = 8,
                     .moving = Moving::all_gather_v,
                     .flows = flows,
                     .symmetric = symmetric,
                     .counts = {1, 2},
                     .second = 0};
  };
  setups.push_back({.name = "all-gather-v-one-tensor",
                    .calls = {alone(false, false), alone(true, false), alone(true, true), alone(false, false)},
                    .bound = 1,
                    .pipeline_slots = 2,
                    .symmetric_bytes = 128});
  // Slots whose lengths follow neither from rows nor from the other slots.
  for (const Moving moving : {Moving::all_gather_v, Moving::reduce_scatter_v}) {
    const char* const kind = moving == Moving::all_gather_v ? "all-gather" : "reduce-scatter";
    const auto call = [&](std::vector<std::int32_t> slots, bool flows) {
      return CallSetup{.count = 8,
                       .moving = moving,
                       .flows = flows,
                       .counts = {1, 1},
                       .padding = Padding::per_rank,
                       .slots = std::move(slots)};
    };
    setups.push_back(
        {.name = fmt::format("{}-v-per-rank", kind), .calls = {call({3, 1}, false), call({1, 2}, true)}, .bound = 1});
  }
  for (const std::uint32_t epoch : {0x7ffffffeu, 0xfffffffeu}) {
    setups.push_back({.name = fmt::format("all-gather-wrap{}", epoch == 0x7ffffffeu ? 31 : 32),
                      .type = DataType::i32,
                      .start_epoch = epoch,
                      .calls = {{.count = 2, .moving = Moving::all_gather},
                                {.count = 2, .moving = Moving::all_gather, .flows = true},
                                {.count = 2, .moving = Moving::all_gather}}});
  }
  // Blocks of two threads, so that a barrier of the block can be missing.
  for (const auto& [kind, moving] : {std::pair{"all-gather", Moving::all_gather},
                                     {"all-to-all", Moving::all_to_all},
                                     {"broadcast", Moving::broadcast},
                                     {"reduce-scatter", Moving::reduce_scatter}}) {
    setups.push_back({.name = fmt::format("{}-threads", kind),
                      .calls = {{.count = 16, .grids = {{2, 2}}, .moving = moving, .flows = true}},
                      .bound = 1,
                      .pipeline_slots = 2});
  }
  setups.push_back(
      {.name = "all-gather-symmetric-threads",
       .calls = {{.count = 16, .grids = {{2, 2}}, .moving = Moving::all_gather, .flows = true, .symmetric = true},
                 {.count = 16, .grids = {{2, 2}}, .moving = Moving::all_gather, .flows = true, .symmetric = true}},
       .bound = 1,
       .pipeline_slots = 2,
       .pipeline_packs = 2,  // one chunk, which one thread announces
       .symmetric_bytes = 128});
  for (const auto& [kind, moving] : {std::pair{"barrier", Moving::barrier}, {"broadcast", Moving::broadcast}}) {
    const std::uint64_t count = moving == Moving::barrier ? 0 : 8;
    setups.push_back({.name = fmt::format("{}-wrap32", kind),
                      .start_epoch = 0xfffffffeu,
                      .calls = {{.count = count, .moving = moving},
                                {.count = count, .moving = moving},
                                {.count = count, .moving = moving}},
                      .bound = 1});
  }
  setups.push_back({.name = "chunks-released",
                    .calls = releases({{.count = 8, .moving = Moving::all_gather, .flows = true},
                                       {.count = 8, .moving = Moving::reduce_scatter, .flows = true}},
                                      1),
                    .bound = 1,
                    .pipeline_slots = 2});
  // Numbers of every rank: two lines of them, and one line.
  const auto gathers_counts = [](std::uint64_t columns, Grid grid = Grid{}) {
    return CallSetup{.count = columns,
                     .grids = {grid},
                     .moving = Moving::gather_counts,
                     .counts = {2, 1},
                     .padding = Padding::aligned};
  };
  const std::vector<CallSetup> counts{gathers_counts(3), gathers_counts(1), gathers_counts(4)};
  setups.push_back({.name = "gathered-counts",
                    .atomic_bytes = 8,
                    .start_epoch = 0x7ffffffeu,
                    .payload = Payload::special,
                    .calls = counts});
  setups.push_back({.name = "gathered-counts-cpu",
                    .atomic_bytes = 8,
                    .one_thread = true,
                    .start_epoch = 0xfffffffeu,
                    .payload = Payload::special,
                    .calls = counts});
  CallSetup of_one_group = gathers_counts(3, {2, 2});  // its ranks have the same rows
  of_one_group.group_ranks = 2;
  of_one_group.counts = {3};
  of_one_group.sharding = Sharding::ceil;
  of_one_group.split_slots = true;
  setups.push_back({.name = "gathered-counts-threads",
                    .payload = Payload::special,
                    .calls = {gathers_counts(3, {2, 2}), gathers_counts(2, {2, 2}), of_one_group},
                    .bound = 1});
  setups.push_back({.name = "barriers",
                    .ranks = 3,
                    .calls = {{.moving = Moving::barrier}, {.moving = Moving::barrier}, {.moving = Moving::barrier}}});
  return setups;
}

namespace {

// One busy rank, whose rows take the links of all ranks; in turn with calls that use the same slots in other ways.
void add_detours(std::vector<Setup>& setups) {
  for (const unsigned ranks : {3u, 4u}) {
    const auto busy = [&](unsigned rank) {
      std::vector<std::int32_t> counts(ranks, 0);
      counts[rank] = 5;
      counts[(rank + 1) % ranks] = 1;
      return counts;
    };
    const auto ragged = [&](std::uint64_t count, unsigned rank, Moving moving) {
      return CallSetup{.count = count,
                       .grids = {{3, 2}, {2, 1}, kSmall},
                       .moving = moving,
                       .flows = true,
                       .detour = true,
                       .counts = busy(rank),
                       .padding = Padding::none};
    };
    std::vector<CallSetup> calls{
        {.count = 44, .grids = {{3, 2}, {2, 1}}, .moving = Moving::broadcast, .flows = true, .detour = true},
        ragged(12, 0, Moving::all_gather_v),
        ragged(10, 1, Moving::reduce_scatter_v),
        {.count = 33, .grids = {{2, 1}, {3, 2}}, .moving = Moving::broadcast, .flows = true, .detour = true},
        {.count = 20, .grids = {kSmall, {3, 2}}, .moving = Moving::all_gather, .flows = true},
        ragged(8, 2, Moving::reduce_scatter_v),
        ragged(9, 1, Moving::all_gather_v),
    };
    calls.back().second = 0;
    setups.push_back({.name = fmt::format("moves-detour-ranks{}", ranks),
                      .ranks = ranks,
                      .start_epoch = 0xfffffffdu,
                      .payload = Payload::special,
                      .calls = calls});
    // In lines; in turn with the two-shot, which has the same areas.
    std::vector<CallSetup> lines = calls;
    for (CallSetup& call : lines) call.flows = false;
    lines[4].moving = Moving::all_to_all;
    lines.insert(lines.begin() + 2, {.count = 40, .grids = {{3, 2}, kSmall}});
    lines.push_back({.count = 33});
    setups.push_back({.name = fmt::format("moves-relays-ranks{}", ranks),
                      .algorithm = Algorithm::two_shot,
                      .ranks = ranks,
                      .atomic_bytes = ranks == 3 ? 8 : 16,
                      .start_epoch = 0x7ffffffdu,
                      .payload = Payload::special,
                      .calls = lines});
    if (ranks != 3) continue;
    setups.push_back({.name = "moves-detour-two-slots",  // too few: no detour is made
                      .ranks = ranks,
                      .calls = {ragged(12, 0, Moving::all_gather_v), ragged(10, 1, Moving::reduce_scatter_v)},
                      .pipeline_slots = 2});
    setups.push_back(
        {.name = "broadcast-detour-threads",
         .ranks = ranks,
         .calls = {{.count = 40, .grids = {{2, 2}}, .moving = Moving::broadcast, .flows = true, .detour = true}},
         .bound = 1,
         .pipeline_packs = 2});
  }
}

}  // namespace

std::vector<Setup> large_move_setups() {
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
        {.count = 5,
         .grids = {kSmall},
         .moving = Moving::reduce_scatter_v,
         .counts = counts(0, 2),
         .padding = Padding::none},
    };
    // Slots of every kind, counts that all ranks share, pads in and out.
    std::vector<CallSetup> ragged;
    for (const Padding padding : {Padding::none, Padding::aligned, Padding::max, Padding::fixed}) {
      const bool odd = padding == Padding::aligned || padding == Padding::fixed;
      const auto total = static_cast<std::int32_t>(ranks + 1);
      ragged.push_back({.count = 9,
                        .grids = {kSmall, {3, 2}},
                        .moving = Moving::all_gather_v,
                        .counts = odd ? counts(0, 1) : std::vector{total},
                        .sharding = odd                       ? Sharding::none
                                    : padding == Padding::max ? Sharding::ceil
                                                              : Sharding::balanced,
                        .padding = padding,
                        .second = 3});
      ragged.push_back({.count = 6,
                        .grids = {{2, 2}, kSmall},
                        .moving = Moving::reduce_scatter_v,
                        .flows = odd,
                        .counts = odd ? std::vector{total} : counts(2, 1),
                        .sharding = odd ? Sharding::balanced : Sharding::none,
                        .padding = padding});
    }
    setups.push_back({.name = fmt::format("moves-ragged-ranks{}", ranks),
                      .ranks = ranks,
                      .atomic_bytes = 8,
                      .payload = Payload::special,
                      .calls = ragged});
    for (CallSetup& call : ragged) {
      call.second = 0;
      if (call.moving == Moving::all_gather_v) call.flows = call.sharding == Sharding::none;
    }
    setups.push_back({.name = fmt::format("moves-ragged-one-tensor-ranks{}", ranks),
                      .ranks = ranks,
                      .start_epoch = 0xfffffffcu,
                      .payload = Payload::special,
                      .calls = ragged});
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
    // In turn with the all-reduce whose slots they use.
    std::vector<CallSetup> gathered;
    for (const Padding padding : {Padding::none, Padding::aligned, Padding::max, Padding::fixed}) {
      const unsigned shared = padding == Padding::aligned || padding == Padding::max ? ranks : 1;
      gathered.push_back({.count = 5,
                          .grids = {{3, 2}, kSmall, {2, 3}},
                          .moving = Moving::gather_counts,
                          .counts = counts(2, 1),
                          .sharding = padding == Padding::max ? Sharding::ceil : Sharding::balanced,
                          .padding = padding,
                          .group_ranks = shared,
                          .split_slots = padding == Padding::aligned});
      gathered.push_back({.count = 9, .grids = {kSmall, {3, 2}}});
    }
    setups.push_back({.name = fmt::format("gathered-counts-mixed-ranks{}", ranks),
                      .ranks = ranks,
                      .atomic_bytes = 8,
                      .start_epoch = 0xfffffffcu,
                      .payload = Payload::special,
                      .calls = gathered});
    setups.push_back({.name = fmt::format("gathered-counts-replays-ranks{}", ranks),
                      .ranks = ranks,
                      .calls = replays({gathered[0], gathered[1], gathered[2]})});
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
                    .pipeline_slots = 2});
  // Chunks with several packs summed at once, and some packs left over.
  setups.push_back(
      {.name = "reduce-scatter-batches",
       .calls = {{.count = 160, .grids = {{3, 2}, {2, 1}}, .moving = Moving::reduce_scatter, .flows = true},
                 {.count = 80, .grids = {{2, 1}, {3, 2}}, .moving = Moving::reduce_scatter, .flows = true}},
       .pipeline_slots = 2,
       .pipeline_packs = 9});
  // Many chunks through few slots, also more chunks than receivers copy of their own; one sender is busier than the
  // others.
  setups.push_back(
      {.name = "moves-credits",
       .ranks = 3,
       .calls =
           {{.count = 120, .grids = {{3, 2}, {2, 1}}, .moving = Moving::all_gather, .flows = true},
            {.count = 8, .grids = {{2, 1}, {3, 2}}, .moving = Moving::all_gather_v, .flows = true, .counts = {5, 0, 1}},
            {.count = 40, .grids = {{2, 2}}, .moving = Moving::reduce_scatter, .flows = true}},
       .pipeline_slots = 2,
       .pipeline_packs = 2});
  // Several senders, whose number has a divisor in common with the relays' number on some ranks; more chunks than
  // receivers copy.
  setups.push_back(
      {.name = "moves-detour-blocks",
       .ranks = 3,
       .calls = {{.count = 128,
                  .grids = {{7, 1}, {5, 1}, {2, 1}},
                  .moving = Moving::broadcast,
                  .flows = true,
                  .detour = true},
                 {.count = 144, .grids = {{5, 1}, {7, 1}, {3, 1}}, .moving = Moving::all_gather, .flows = true}},
       .pipeline_slots = 6,
       .pipeline_packs = 1});
  add_detours(setups);
  return setups;
}

}  // namespace weft::sim
