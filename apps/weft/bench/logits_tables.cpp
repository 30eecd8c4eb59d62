#include "bench/logits_tables.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bench/bench_options.hpp"
#include "common/sizes.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

constexpr const char* kTopKLegend =
    "size: all logits, of the input's type; GB/s: size over time, although Weft sends candidates alone. NCCL, Gloo: "
    "their\n"
    "gather of all logits, which is neither put into rows nor searched. speed-up: best peer's time over Weft's.\n";
constexpr const char* kGroupsLegend =
    "rows: of each attention group, whose ranks get these alone; size: the output of a rank, of the input's type; "
    "GB/s:\n"
    "size over time. separate: Weft's gather of all groups' rows. NCCL, Gloo: their gather of all rows, and a kernel "
    "that\n"
    "puts the group's into order. plain push: as many bytes as one rank gets of another, stored to all ranks.\n"
    "speed-up: best peer's time over Weft's.\n";
constexpr const char* kLogitsLegend =
    "size: the output of a rank, of the input's type; GB/s: size over time. plain push: each rank's columns, stored "
    "to\n"
    "all ranks, rank after rank. NCCL, Gloo: their gather and, from two rows on, a kernel that puts shards into rows\n"
    "and changes nothing.\n"
    "speed-up: best peer's time over Weft's.\n";

}  // namespace

Table logits_table(const std::vector<Result>& results, Method method, const Crowd& crowd) {
  const std::vector<Contender> contenders = contenders_in(results, method);
  const bool busy = std::ranges::any_of(results, [](const Result& r) { return r.point.load == Load::busy; });
  std::vector<std::string> columns = {"rows", "size"};
  if (busy) columns.insert(columns.begin(), "load");
  for (const auto one : contenders) columns.emplace_back(one == Contender::automatic ? "Weft" : name(one));
  columns.insert(columns.end(), {"GB/s", "speed-up"});
  Table table(columns, busy ? 3 : 1);
  for (const auto& ours : results) {
    const Point& point = ours.point;
    if (point.method != method || point.contender != Contender::automatic) continue;
    std::vector<std::string> cells = {std::to_string(point.rows), format_bytes(point.bytes())};
    if (busy) cells.insert(cells.begin(), std::string(name(point.load)));
    for (const auto contender : contenders) cells.push_back(cell(in_row(results, point, contender)));
    cells.push_back(ours.verdict == Verdict::ok ? fmt::format("{:.2f}", ours.gb_per_s()) : "-");
    cells.push_back(cell(speed_up(ours, best_peer(results, point), crowd)));
    table.add(cells);
  }
  return table;
}

const char* logits_legend(const LogitsForm& form) {
  if (form.top_k != 0) return kTopKLegend;
  return form.groups != 1 ? kGroupsLegend : kLogitsLegend;
}

}  // namespace weft::cli
