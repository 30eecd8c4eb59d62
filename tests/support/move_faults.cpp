#include "support/move_faults.hpp"

namespace weft::test {

std::vector<NamedMove> waiting_moves() {
  constexpr std::size_t long_row = 200'000;
  return {{"GatherInLines", {.kind = Kind::all_gather, .widths = {1000}}},
          {"GatherInChunks", {.kind = Kind::all_gather, .widths = {long_row}}},
          {"AllToAll", {.kind = Kind::all_to_all, .widths = {1000}}},
          {"BroadcastOverAllLinks", {.kind = Kind::broadcast, .rows = 60, .widths = {4096}}},
          {"Scatter", {.kind = Kind::reduce_scatter, .widths = {1000}}},
          {"ScatterInChunks", {.kind = Kind::reduce_scatter, .widths = {long_row}}},
          {"Reduce", {.kind = Kind::reduce, .widths = {1000}}},
          {"ReduceInChunks", {.kind = Kind::reduce, .widths = {long_row}, .op = ReduceOp::avg}},
          {"RaggedGather", {.kind = Kind::all_gather_v, .widths = {1000}, .counts = {3, 0, 1}}},
          {"RaggedScatter", {.kind = Kind::reduce_scatter_v, .widths = {1000}, .counts = {3, 0, 1}}},
          {"NoRowsAtAll", {.kind = Kind::all_gather_v, .widths = {1000}, .counts = {0, 0, 0}}},
          {"GatherOfABusyRank", {.kind = Kind::all_gather_v, .widths = {4096}, .counts = {60, 0, 1}}},
          {"ScatterOfABusyRank", {.kind = Kind::reduce_scatter_v, .widths = {4096}, .counts = {60, 0, 1}}},
          {"CrossingThere", {.kind = Kind::gather_sums, .widths = {200}, .counts = {3, 0, 1}, .group_ranks = 3}},
          {"CrossingBack", {.kind = Kind::scatter_sums, .widths = {200}, .counts = {3, 0, 1}, .group_ranks = 3}},
          {"LongCrossingThere", {.kind = Kind::gather_sums, .widths = {4096}, .counts = {9, 0, 1}, .group_ranks = 3}},
          {"LongCrossingBack", {.kind = Kind::scatter_sums, .widths = {4096}, .counts = {9, 0, 1}, .group_ranks = 3}}};
}

namespace {

template <class Change>
Move changed(Move move, Change&& change) {
  change(move);
  return move;
}

}  // namespace

std::vector<std::pair<Move, Move>> differing_moves(int ranks) {
  const Move base{.kind = Kind::all_gather, .rows = 2, .widths = {40}};
  const Move root{.kind = Kind::broadcast, .rows = 2, .widths = {40}};
  const Move scatter{.kind = Kind::reduce_scatter, .rows = 2, .widths = {40}};
  const Move reduce{.kind = Kind::reduce, .rows = 2, .widths = {40}};
  std::vector<std::pair<Move, Move>> pairs = {
      {base, changed(base, [](Move& m) { m.kind = Kind::all_to_all; })},
      {base, changed(base, [](Move& m) { m.rows = 3; })},
      {base, changed(base, [](Move& m) { m.widths = {48}; })},
      {base, changed(base, [](Move& m) { m.tag = 1; })},
      {root, changed(root, [](Move& m) { m.root = 1; })},
      {scatter, changed(scatter, [](Move& m) { m.type = DataType::f16; })},
      {scatter, changed(scatter, [](Move& m) { m.op = ReduceOp::max; })},
      {changed(scatter, [](Move& m) { m.op = ReduceOp::max; }),
       changed(scatter, [](Move& m) { m.op = ReduceOp::min; })},
      {reduce, changed(reduce, [](Move& m) { m.root = 1; })},
      {reduce, changed(reduce, [](Move& m) { m.widths = {48}; })},
      {reduce, changed(reduce, [](Move& m) { m.type = DataType::f16; })},
      {reduce, changed(reduce, [](Move& m) { m.op = ReduceOp::avg; })},
      {reduce, changed(reduce, [](Move& m) { m.tag = 1; })},
  };
  const std::vector<std::int32_t> ones(static_cast<std::size_t>(ranks), 1);
  for (const Kind kind : {Kind::all_gather_v, Kind::reduce_scatter_v}) {
    const Move ragged{.kind = kind, .widths = {40}, .counts = ones};
    const Move aligned = changed(ragged, [](Move& m) { m.padding = Padding::aligned, m.slot_rows = 2; });
    const Move split{.kind = kind, .widths = {40}, .counts = {ranks}, .sharding = Sharding::balanced};
    pairs.insert(pairs.end(), {{ragged, changed(ragged, [](Move& m) { m.padding = Padding::max; })},
                               {ragged, changed(ragged, [](Move& m) { m.widths = {48}; })},
                               {ragged, changed(ragged, [](Move& m) { m.tag = 1; })},
                               {ragged, split},
                               {split, changed(split, [](Move& m) { m.sharding = Sharding::ceil; })},
                               {aligned, changed(aligned, [](Move& m) { m.slot_rows = 4; })},
                               {aligned, changed(aligned, [](Move& m) { m.padding = Padding::fixed; })}});
    // The same call with the same host arguments: the difference is in the devices' memory.
    const Move given = changed(ragged, [&](Move& m) { m.padding = Padding::per_rank, m.slots.assign(ones.size(), 3); });
    pairs.insert(pairs.end(), {{ragged, changed(ragged, [](Move& m) { m.counts.back() = 2; })},
                               {ragged, changed(ragged, [](Move& m) { m.counts.front() = 40'000; })},
                               {split, changed(split, [](Move& m) { ++m.counts[0]; })},
                               {given, changed(given, [](Move& m) { m.slots.back() = 4; })}});
  }
  const Move gather_v{.kind = Kind::all_gather_v, .widths = {40}, .counts = ones};
  const Move scatter_v{.kind = Kind::reduce_scatter_v, .widths = {40}, .counts = ones};
  pairs.push_back({gather_v, changed(gather_v, [](Move& m) { m.widths = {40, 1}; })});
  pairs.push_back({gather_v, scatter_v});
  pairs.push_back({scatter_v, changed(scatter_v, [](Move& m) { m.type = DataType::f16; })});
  pairs.push_back({scatter_v, changed(scatter_v, [](Move& m) { m.op = ReduceOp::avg; })});
  return pairs;
}

}  // namespace weft::test
