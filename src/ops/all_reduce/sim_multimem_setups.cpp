// Set-ups of the all-reduces by NVLink's switches. Their loads and stores here are those of a switch that serves the
// ranks in turn.
#include <fmt/format.h>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

constexpr Algorithm one = Algorithm::multimem_one_shot, two = Algorithm::multimem_two_shot;
constexpr DataType bf16 = DataType::bf16, f16 = DataType::f16, f32 = DataType::f32;
constexpr Payload special = Payload::special;

}  // namespace

std::vector<Setup> small_multimem_setups() {
  // Two chunks at most; three calls, so that a bank is used again.
  const std::vector<CallSetup> packs{{.count = 16}, {.count = 13, .in_place = true}, {.count = 8}};
  const std::vector<CallSetup> packs_f32{{.count = 8}, {.count = 5, .in_place = true}, {.count = 4}};
  const std::vector<CallSetup> threads{{.count = 24, .grids = {{2, 2}}}};
  return {
      {.name = "multimem-one-shot-bf16", .algorithm = one, .type = bf16, .payload = special, .calls = packs},
      {.name = "multimem-one-shot-f32-torn4", .algorithm = one, .type = f32, .atomic_bytes = 4, .calls = packs_f32},
      {.name = "multimem-one-shot-threads", .algorithm = one, .calls = threads, .bound = 1, .pipeline_packs = 2},
      {.name = "multimem-one-shot-cpu",
       .algorithm = one,
       .type = f16,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = packs},
      {.name = "multimem-two-shot-bf16", .algorithm = two, .type = bf16, .calls = packs},
      {.name = "multimem-two-shot-f16-torn8",
       .algorithm = two,
       .type = f16,
       .atomic_bytes = 8,
       .payload = special,
       .calls = packs},
      {.name = "multimem-two-shot-threads", .algorithm = two, .calls = threads, .bound = 1, .pipeline_packs = 2},
      {.name = "multimem-two-shot-cpu",
       .algorithm = two,
       .type = f32,
       .atomic_bytes = 8,
       .one_thread = true,
       .calls = packs_f32},
      {.name = "multimem-two-shot-replays", .algorithm = two, .type = bf16, .calls = replays(packs), .bound = 1},
      {.name = "multimem-two-shot-wrap32",
       .algorithm = two,
       .type = f32,
       .start_epoch = 0xfffffffdu,
       .calls = {{.count = 8}, {.count = 0}, {.count = 4}, {.count = 8}, {.count = 5}}},
      {.name = "multimem-two-shot-short-3",
       .algorithm = two,
       .type = f32,
       .ranks = 3,
       .calls = {{.count = 4}, {.count = 16}, {.count = 3}},
       .bound = 1},
  };
}

std::vector<Setup> large_multimem_setups() {
  // Several chunks a block, and grids that change from call to call and differ between ranks.
  const auto calls = [](std::uint64_t pack) {
    return std::vector<CallSetup>{
        {.count = 9 * pack, .grids = {{3, 2}, kSmall}},
        {.count = 4 * pack + 1, .grids = {kSmall, {2, 2}}, .in_place = true},
        {.count = 0, .grids = {{3, 1}, kSmall}},
        {.count = 11 * pack - 1, .grids = {{2, 3}, {3, 2}}, .misaligned = true},
        {.count = 1, .grids = {kSmall, {3, 2}}, .in_place = true},
        {.count = 8 * pack, .grids = {{3, 2}, {2, 2}}},
    };
  };
  std::vector<Setup> setups;
  for (const Algorithm algorithm : {one, two}) {
    const auto add = [&](const std::string& what, Setup setup) {
      setup.name = fmt::format("{}-{}-ranks{}", name(algorithm), what, setup.ranks);
      setup.algorithm = algorithm;
      setups.push_back(std::move(setup));
    };
    for (const unsigned ranks : {2u, 3u, 4u}) {
      add("bf16-grids", {.type = bf16, .ranks = ranks, .payload = special, .calls = calls(8), .pipeline_packs = 2});
      add("f32-torn4-grids", {.type = f32,
                              .ranks = ranks,
                              .atomic_bytes = 4,
                              .start_epoch = 0xfffffffdu,
                              .payload = Payload::rounding,
                              .calls = calls(4)});
      add("f16-torn8-grids", {.type = f16,
                              .ranks = ranks,
                              .atomic_bytes = 8,
                              .start_epoch = 0x7ffffffdu,
                              .payload = Payload::rounding,
                              .calls = calls(8)});
      add("f32-released",
          {.type = f32, .ranks = ranks, .calls = releases(calls(4), static_cast<int>(ranks) - 1), .pipeline_packs = 2});
    }
    add("cpu",
        {.type = bf16, .ranks = 4, .atomic_bytes = 8, .one_thread = true, .payload = special, .calls = calls(8)});
  }
  return setups;
}

}  // namespace weft::sim
