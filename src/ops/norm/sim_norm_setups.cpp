// Set-ups of all-reduces with residual and norm.
#include <fmt/format.h>

#include "sim/setup.hpp"

namespace weft::sim {
namespace {

using detail::RowScaling;

CallSetup norm(std::uint64_t packs, std::uint64_t rows, const std::vector<Grid>& grids = {Grid{}},
               const NormForm& form = {}) {
  return {.count = packs * 8, .grids = grids, .moving = Moving::rms_norm, .rows = rows, .norm = form};
}
CallSetup in_place(CallSetup call) {
  call.in_place = true;
  return call;
}
CallSetup keeping_own(CallSetup call) {
  call.norm.keeps_own = true;
  return call;
}
CallSetup in_roles(CallSetup call) {
  call.norm.roles = true;
  return call;
}
// Adds the steps of a norm of rows that are longer than the buffers.
void add_wide(std::vector<CallSetup>& calls, CallSetup call, std::uint64_t piece) {
  const auto sums = static_cast<unsigned>((call.count / 8 + piece - 1) / piece * call.rows);
  call.piece = piece;
  call.of = static_cast<int>(calls.size());
  for (call.step = 0; call.step <= sums; ++call.step) {
    call.alone = call.step == sums;
    calls.push_back(call);
  }
}
std::vector<CallSetup> wide(const std::vector<CallSetup>& norms, std::uint64_t piece) {
  std::vector<CallSetup> calls;
  for (const CallSetup& call : norms) add_wide(calls, call, piece);
  return calls;
}
// Replays all calls, in the memory of the first time: while the windows are away, and when they are back at their
// places.
std::vector<CallSetup> released(std::vector<CallSetup> calls) {
  const std::size_t eager = calls.size();
  for (const Act act : {Act::release, Act::acquire}) {
    calls.push_back({.act = act});
    for (std::size_t i = 0; i < eager; ++i) {
      calls.push_back(calls[i]);
      calls.back().replays = static_cast<int>(i);
    }
  }
  return calls;
}
constexpr NormForm kPlain{.scaling = RowScaling::none};
constexpr NormForm kF32{.gamma_f32 = true};

}  // namespace

std::vector<Setup> small_norm_setups() {
  std::vector<Setup> setups;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    const auto add = [&](const char* how, Setup setup) {
      setup.name = fmt::format("rms-norm-{}-{}", name(algorithm), how);
      setup.algorithm = algorithm;
      setups.push_back(std::move(setup));
    };
    const std::vector<CallSetup> calls{norm(1, 1), in_place(norm(2, 1, {Grid{}}, kPlain)), norm(1, 1)};
    add("bf16", {.calls = calls});
    add("torn8", {.atomic_bytes = 8, .payload = Payload::special, .calls = calls});
    add("cpu", {.atomic_bytes = 8, .one_thread = true, .calls = calls});
    add("replays", {.calls = replays(calls)});
    add("released", {.calls = releases(calls, 1)});
    // A row of two packs in a block of two threads, and rows one after the other.
    add("threads", {.calls = {norm(2, 3, {{2, 2}})}, .bound = 1});
    add("lanes2", {.atomic_bytes = 16, .lanes = 2, .calls = {norm(3, 2, {{2, 2}})}, .bound = 1});
    add("f32-lanes2", {.atomic_bytes = 16, .lanes = 2, .calls = {norm(3, 2, {{2, 2}}, kF32)}, .bound = 1});
    if (algorithm == Algorithm::one_shot) {
      const std::vector<CallSetup> kept{keeping_own(norm(1, 1)), in_place(norm(2, 1, {Grid{}}, kPlain)),
                                        in_place(keeping_own(norm(1, 1, {Grid{}}, kPlain)))};
      add("keeps-own", {.calls = kept});
      add("keeps-own-in-place", {.calls = {in_place(keeping_own(norm(2, 3, {{3, 1}}, kPlain))),
                                           in_place(keeping_own(norm(3, 2, {{2, 2}}, kPlain)))},
                                 .bound = 1});
      add("keeps-own-cpu", {.atomic_bytes = 8, .one_thread = true, .calls = kept});
    }
    // In place: a block of one rank may norm a row before another block has sent its part of it.
    add("in-place-blocks", {.calls = {in_place(norm(2, 1, {{3, 1}}, kPlain))}, .bound = 1});
    add("wide", {.calls = wide({norm(2, 1), in_place(norm(2, 1, {Grid{}}, kPlain))}, 1), .bound = 1});
    add("wide-cpu", {.atomic_bytes = 8,
                     .one_thread = true,
                     .calls = wide({norm(2, 1), in_place(norm(2, 2, {Grid{}}, kPlain))}, 1)});
    add("wide-released", {.calls = released(wide({norm(2, 1)}, 1)), .bound = 1});
    add("wrap32", {.start_epoch = 0xfffffffdu, .calls = {norm(1, 1), norm(1, 0), norm(1, 2), norm(1, 1), norm(1, 1)}});
  }
  const auto add_in_roles = [&](const char* how, Setup setup) {
    setup.name = fmt::format("rms-norm-roles-{}", how);
    setup.algorithm = Algorithm::two_shot;
    setups.push_back(std::move(setup));
  };
  // One block moves, the other norms.
  const std::vector<Grid> roles{{3, 1}};
  add_in_roles("apart",
               {.calls = {in_roles(norm(2, 2, roles)), in_roles(in_place(norm(1, 1, roles, kPlain)))}, .bound = 1});
  // Beside a rank without roles.
  add_in_roles("mixed", {.calls = {in_roles(norm(2, 1, {{3, 1}, Grid{}})), norm(1, 1)}, .bound = 1});
  add_in_roles("threads", {.calls = {in_roles(norm(2, 3, {{3, 2}}))}, .bound = 1});
  return setups;
}

std::vector<Setup> large_norm_setups() {
  constexpr Grid small{.blocks = 2, .threads = 1};
  const NormForm first{.scaling = RowScaling::none, .residual = false};
  const NormForm gemma{.power_of_two = true, .gamma_plus_one = true, .apart = true};
  const std::vector<CallSetup> mixed{norm(3, 2, {{3, 2}, small}),         in_place(norm(2, 3, {small, {2, 2}}, kPlain)),
                                     norm(1, 0, {{3, 1}, small}),         {.count = 9, .grids = {{3, 2}, {2, 1}}},
                                     norm(5, 1, {{2, 3}, {3, 2}}, gemma), in_place(norm(1, 4, {small, {3, 2}}, first))};
  // Rows of more packs than share a scale; the last group has fewer.
  const NormForm groups{.scaling = RowScaling::per_group, .floor = 2};
  const NormForm f32{.scaling = RowScaling::per_group, .power_of_two = true, .gamma_plus_one = true, .gamma_f32 = true};
  const NormForm apart{
      .scaling = RowScaling::per_group, .power_of_two = true, .floor = 1, .output = false, .apart = true};
  const NormForm fixed{.scaling = RowScaling::fixed, .residual = false, .output = false};
  std::vector<Setup> setups;
  for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot}) {
    for (const unsigned ranks : {2u, 3u, 4u}) {
      const auto add = [&](const char* how, Setup setup) {
        setup.name = fmt::format("rms-norm-{}-{}-ranks{}", name(algorithm), how, ranks);
        setup.algorithm = algorithm;
        setup.ranks = ranks;
        setups.push_back(std::move(setup));
      };
      add("grids", {.payload = Payload::special, .calls = mixed});
      add("torn8-grids", {.atomic_bytes = 8, .start_epoch = 0x7ffffffdu, .payload = Payload::rounding, .calls = mixed});
      add("replays-grids", {.start_epoch = 0xfffffffeu, .calls = replays(mixed)});
      if (algorithm == Algorithm::one_shot && ranks == 2) {
        std::vector<CallSetup> kept = mixed;
        for (std::size_t i = 0; i < kept.size(); i += 2) kept[i] = keeping_own(kept[i]);
        add("keeps-own-grids", {.payload = Payload::special, .calls = kept});
      }
      add("cpu-grids", {.atomic_bytes = 8, .one_thread = true, .payload = Payload::special, .calls = mixed});
    }
    for (const DataType type : {DataType::bf16, DataType::f16}) {
      setups.push_back({.name = fmt::format("rms-norm-{}-forms-{}", name(algorithm), name(type)),
                        .algorithm = algorithm,
                        .type = type,
                        .calls = {norm(18, 2, {{3, 2}, small}, groups), norm(2, 3, {small, {2, 2}}, fixed),
                                  in_place(norm(2, 1, {small, {3, 1}}, kPlain)), norm(17, 2, {{2, 2}}, apart)}});
    }
    // A row of one pack, of fewer packs than a warp has lanes, of more than one pack for each lane; warps that share
    // rows.
    const auto with_lanes = [&](unsigned lanes, const std::vector<CallSetup>& calls) {
      setups.push_back({.name = fmt::format("rms-norm-{}-lanes{}-grids", name(algorithm), lanes),
                        .algorithm = algorithm,
                        .lanes = lanes,
                        .payload = Payload::rounding,
                        .calls = calls});
    };
    with_lanes(2,
               {norm(9, 2, {{2, 4}, {3, 2}}), in_place(norm(1, 3, {{3, 4}}, kPlain)), norm(34, 1, {{2, 6}, {2, 2}})});
    with_lanes(16, {norm(17, 2, {{2, 16}}), norm(9, 2, {{2, 16}}), in_place(norm(1, 1, {{2, 16}}, kPlain)),
                    norm(34, 1, {{2, 16}})});
    setups.push_back({.name = fmt::format("rms-norm-{}-f32-ranks3", name(algorithm)),
                      .algorithm = algorithm,
                      .ranks = 3,
                      .payload = Payload::rounding,
                      .calls = {norm(18, 2, {{3, 2}, small}, f32), in_place(norm(3, 3, {{2, 2}}, kF32))}});
    setups.push_back(
        {.name = fmt::format("rms-norm-{}-lanes16-groups", name(algorithm)),
         .algorithm = algorithm,
         .lanes = 16,
         .calls = {norm(18, 2, {{2, 16}}, groups), norm(16, 2, {{2, 16}}, groups), norm(34, 1, {{2, 16}}, apart)}});
    // Rows and pieces that are longer than a segment, and buffers that are shorter than a row.
    const std::vector<CallSetup> longer{norm(39, 2, {{3, 2}, small}, apart), in_place(norm(40, 1, {{2, 2}}, first)),
                                        norm(38, 1, {small, {3, 3}})};
    for (const DataType type : {DataType::bf16, DataType::f16}) {
      setups.push_back({.name = fmt::format("rms-norm-{}-wide-{}", name(algorithm), name(type)),
                        .algorithm = algorithm,
                        .type = type,
                        .payload = Payload::rounding,
                        .calls = wide(longer, 14)});
    }
    setups.push_back({.name = fmt::format("rms-norm-{}-groups", name(algorithm)),
                      .algorithm = algorithm,
                      .ranks = 3,
                      .groups = {{0, 1, 2}, {2, 0}},
                      .side_by_side = true,
                      .calls = {norm(2, 2), norm(1, 3), norm(3, 1)}});
    setups.back().calls[1].group = 1;
  }
  // Several movers, several blocks that norm, ranks whose roles differ, and threads with several packs of a row: at
  // once, in two batches, and one after the other.
  const std::vector<CallSetup> mixed_roles{in_roles(norm(3, 3, {{5, 2}, {3, 1}})),
                                           in_roles(in_place(norm(7, 2, {{4, 1}, small}, kPlain))),
                                           norm(2, 2, {{3, 2}, small}),
                                           in_roles(norm(1, 0, {{3, 1}})),
                                           in_roles(norm(9, 1, {{3, 1}, {5, 1}}, gemma)),
                                           in_roles(in_place(norm(1, 5, {{6, 2}, {3, 3}}, first)))};
  const auto add_in_roles = [&](const char* how, Setup setup) {
    setup.name = fmt::format("rms-norm-roles-{}", how);
    setup.algorithm = Algorithm::two_shot;
    setups.push_back(std::move(setup));
  };
  add_in_roles("grids", {.payload = Payload::special, .calls = mixed_roles});
  add_in_roles("torn8-grids",
               {.atomic_bytes = 8, .start_epoch = 0x7ffffffdu, .payload = Payload::rounding, .calls = mixed_roles});
  add_in_roles("replays-grids", {.start_epoch = 0xfffffffeu, .calls = replays(mixed_roles)});
  add_in_roles("lanes2-grids",
               {.lanes = 2, .calls = {in_roles(norm(9, 2, {{4, 2}, {3, 4}})), in_roles(norm(3, 3, {{3, 2}}))}});
  // Two movers' processors and one that norms, each of two warp groups.
  const auto of_groups = [](CallSetup call) {
    call.norm.warp_groups = 2;
    return in_roles(call);
  };
  add_in_roles("groups-grids", {.payload = Payload::rounding,
                                .calls = {of_groups(norm(3, 5, {{6, 1}})), of_groups(norm(2, 4, {{6, 1}, {8, 2}})),
                                          of_groups(in_place(norm(5, 3, {{8, 1}, {3, 1}}, kPlain)))}});
  setups.push_back({.name = "rms-norm-wide-lanes16",
                    .lanes = 16,
                    .calls = wide({norm(39, 2, {{2, 16}}, groups), in_place(norm(34, 1, {{2, 16}}))}, 14)});
  return setups;
}

}  // namespace weft::sim
