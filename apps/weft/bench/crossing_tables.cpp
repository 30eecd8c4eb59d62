#include "bench/crossing_tables.hpp"

#include <algorithm>

#include "bench/bench_options.hpp"
#include "common/sizes.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

bool has(const std::vector<Result>& results, Contender contender) {
  return std::ranges::any_of(results, [&](const Result& r) { return r.point.contender == contender; });
}

}  // namespace

Table crossing_table(const std::vector<Result>& results, Method method, const Crowd& crowd) {
  const std::vector<Contender> contenders = contenders_in(results, method);
  const bool straight = has(results, Contender::symmetric);
  std::vector<std::string> columns = {"operation", "load", "padding", "tokens", "size"};
  for (const auto one : contenders) columns.emplace_back(one == Contender::automatic ? "Weft" : name(one));
  columns.emplace_back("speed-up");
  if (straight) columns.emplace_back("symm. speed-up");
  Table table(columns, 5);
  for (const auto& ours : results) {
    const Point& point = ours.point;
    if (point.method != method || point.contender != Contender::automatic) continue;
    std::vector<std::string> cells = {std::string(name(point.operation)), std::string(name(point.load)),
                                      std::string(name(point.padding)), std::to_string(point.rows),
                                      format_bytes(point.bytes())};
    for (const auto contender : contenders) cells.push_back(cell(in_row(results, point, contender)));
    cells.push_back(cell(speed_up(ours, best_peer(results, point), crowd)));
    if (straight) cells.push_back(cell(symmetric_speed_up(results, point, crowd)));
    table.add(cells);
  }
  return table;
}

std::string crossing_legend(const std::vector<Result>& results, const CrossingForm& form) {
  std::string text =
      "tokens: of an attention group; busy: of the first one, the others have 1. size: all groups' rows.\n"
      "padding: of Weft's slots. A line is left out if the slots are those of the line above.\n";
  if (has(results, Contender::separate))
    text += "separate: Weft's reduce_scatter_v and all_gather_v, one behind the other.\n";
  if (has(results, Contender::symmetric))
    text += "symmetric: the gather with outputs in symmetric memory; symm. speed-up: NCCL symm.'s time over it.\n";
  if (std::ranges::any_of(results, [](const Result& r) { return is_peer(r.point.contender); }))
    text +=
        "NCCL: its reduce-scatter and all-gather, or the one of them that groups of one rank need. Each rank has as\n"
        "many rows as the largest, whatever Weft's padding is. symm.: on symmetric windows.\n";
  if (has(results, Contender::nccl_grouped))
    text +=
        "NCCL grouped: the rows that ranks have, by a group of reductions and one of broadcasts. Equal rows are left "
        "out.\n";
  text += "speed-up: best peer's time over Weft's.\n";
  if (form.norm)
    text +=
        "norm: of the sums, with a residual, on the way; separate has a kernel for it between its calls. Peers and\n"
        "\"without norm\" make the crossing alone.\n";
  return text;
}

}  // namespace weft::cli
