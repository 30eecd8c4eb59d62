#include "sim/fault_calls.hpp"

#include <vector>

namespace weft::sim {
namespace {

// There in one hop, back in two, and there in chunks. The ranks of a group are two.
void set_crossings(Setup& setup, const std::vector<Grid>& grids, bool normed) {
  const Moving there = normed ? Moving::gather_sums_norm : Moving::gather_sums;
  CallSetup call{.count = 8, .grids = grids, .moving = there, .group_ranks = 2};
  call.counts.assign(setup.ranks, 1);
  call.counts[0] = 2;
  setup.calls = {call, call, call};
  setup.calls[0].one_hop = true;
  setup.calls[1].grids = {Grid{}};
  setup.calls[1].moving = normed ? Moving::scatter_sums_norm : Moving::scatter_sums;
  setup.calls[2].flows = true;
}

}  // namespace

void set_fault_calls(Setup& setup, const std::string& protocol) {
  const std::vector<Grid> grids{{2, 2}, {3, setup.lanes}};
  if (protocol == "moe") {
    setup.exchange = {.tokens = 1, .hidden = 8, .experts = setup.ranks, .top_k = 2, .capacity = 2 * setup.ranks};
    setup.exchange.handles = 1;  // tables of an earlier call must not pass for those of a failed call
    setup.calls = moe_calls({{{1, 0}, {0, 0}}, {{1, -1}, {0, 1}, {}}}, grids);
  } else if (protocol == "moves") {
    setup.calls = {{.count = 9, .grids = grids, .moving = Moving::all_gather},
                   {.count = 9, .moving = Moving::reduce_scatter},
                   {.count = 12, .grids = grids, .moving = Moving::all_to_all, .flows = true}};
  } else if (protocol == "ragged") {
    std::vector<std::int32_t> counts(setup.ranks, 1);
    counts[0] = 2;
    setup.calls = {{.count = 5, .grids = grids, .moving = Moving::all_gather_v, .counts = counts},
                   {.count = 9, .moving = Moving::broadcast, .detour = true},
                   {.moving = Moving::barrier},
                   {.count = 5, .grids = grids, .moving = Moving::reduce_scatter_v, .flows = true, .counts = counts}};
  } else if (protocol.ends_with("crossings")) {
    set_crossings(setup, grids, protocol.starts_with("normed"));
  } else if (protocol == "columns") {
    const CallSetup shards{.count = 8, .grids = grids, .moving = Moving::all_gather_columns, .rows = 2, .columns = 12};
    setup.calls = {shards, {.count = 8, .moving = Moving::all_to_all_columns}, shards};
    setup.calls[1].counts.assign(setup.ranks, 1);
    setup.calls[1].padding = Padding::none;
    setup.calls[2].flows = true;
  } else if (protocol == "top-k") {
    const CallSetup search{.count = 4, .grids = grids, .moving = Moving::top_k_columns, .rows = 2, .k = 2};
    setup.calls = {search, {.count = 3, .moving = Moving::top_k_columns}, search};
  } else if (protocol == "symmetric") {
    const auto call = [&](Moving moving, std::uint64_t count) {
      return CallSetup{.count = count, .grids = grids, .moving = moving, .flows = true, .symmetric = true, .second = 8};
    };
    setup.symmetric_bytes = 512;
    setup.calls = {call(Moving::all_gather_v, 8), call(Moving::broadcast, 32), call(Moving::all_gather, 16)};
    setup.calls[0].counts.assign(setup.ranks, 1);
    setup.calls[0].counts[0] = 2;
    setup.calls[0].padding = Padding::none;
    setup.calls[1].detour = setup.ranks > 2;
  } else if (protocol == "counts") {
    const std::vector<std::int32_t> counts(setup.ranks, 3);
    setup.calls = {{.count = 3, .grids = grids, .moving = Moving::gather_counts, .counts = counts},
                   {.count = 5, .grids = grids, .moving = Moving::gather_counts, .counts = counts},
                   {.count = 2, .moving = Moving::gather_counts, .counts = counts}};
  } else if (protocol == "messages") {
    // Every rank sends to each other one.
    const auto call = [&](std::uint64_t count, const std::vector<Grid>& on) {
      CallSetup messages{.grids = on, .moving = Moving::messages};
      for (unsigned from = 0; from < setup.ranks; ++from) {
        for (unsigned to = 0; to < setup.ranks; ++to) {
          if (from != to) messages.letters.push_back({from, to, count});
        }
      }
      return messages;
    };
    setup.pipeline_slots = 2;
    setup.calls = {call(9, grids), call(24, {Grid{}}), call(5, grids)};
  } else if (protocol.starts_with("norm-")) {
    if (protocol == "norm-two-shot") setup.algorithm = Algorithm::two_shot;
    const auto norm = [&](std::uint64_t packs, std::uint64_t rows, bool in_place) {
      return CallSetup{
          .count = packs * 8, .grids = grids, .in_place = in_place, .moving = Moving::rms_norm, .rows = rows};
    };
    setup.calls = {norm(2, 1, false), norm(1, 2, true), norm(1, 1, false)};
    setup.calls[1].norm.scaling = detail::RowScaling::none;
    if (protocol == "norm-roles") {
      setup.algorithm = Algorithm::two_shot;
      for (CallSetup& call : setup.calls) call.norm.roles = true;
    }
  } else {
    for (const Algorithm algorithm : {Algorithm::one_shot, Algorithm::two_shot, Algorithm::pipelined,
                                      Algorithm::multimem_one_shot, Algorithm::multimem_two_shot}) {
      if (name(algorithm) == protocol) setup.algorithm = algorithm;
    }
    setup.calls = {{.count = 17, .grids = grids}, {.count = 9, .in_place = true}, {.count = 20}};
  }
}

}  // namespace weft::sim
