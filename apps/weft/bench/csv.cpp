#include "bench/csv.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "common/table.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

std::string number(double value) {
  return fmt::format("{:.4f}", value);
}

std::string or_empty(std::int64_t value) {
  return value == 0 ? "" : std::to_string(value);
}

// The last columns of both kinds of results.
void add_figure(std::vector<std::string>& cells, const Figure& figure) {
  cells.push_back(std::to_string(figure.samples));
  for (const double us : {figure.least, figure.us, figure.most})
    cells.push_back(figure.samples != 0 ? number(us) : std::string());
}

void add_result(Table& table, const CsvArgs& args, const std::vector<Result>& results, const Result& result) {
  const Point& point = result.point;
  const bool right = result.verdict == Verdict::ok;
  const bool reduces = point.operation == Operation::all_reduce;
  const bool has_load =
      is_ragged(point.operation) || is_crossing(point.operation) || point.operation == Operation::all_gather_columns;
  std::vector<std::string> cells = {std::string(name(point.operation)),
                                    has_load ? std::string(name(point.load)) : "",
                                    is_crossing(point.operation) ? std::string(name(point.padding)) : "",
                                    std::to_string(args.ranks),
                                    std::string(name(point.type)),
                                    reduces ? std::string(name(point.op)) : "",
                                    or_empty(point.rows),
                                    or_empty(point.hidden),
                                    std::to_string(point.bytes()),
                                    std::string(name(point.contender)),
                                    std::string(name(point.method)),
                                    or_empty(point.launch.blocks),
                                    or_empty(point.launch.threads),
                                    result.chosen,
                                    std::string(name(result.verdict))};
  add_figure(cells, right ? figure_of(result) : Figure{});
  cells.push_back(right ? number(result.gb_per_s()) : "");
  cells.emplace_back();  // payloads
  SpeedUp ratio;
  if (is_weft(point.contender)) ratio = speed_up(result, best_peer(results, point), args.crowd);
  cells.push_back(ratio.ratio ? number(*ratio.ratio) : "");
  table.add(std::move(cells));
}

// A part of an exchange: of Weft's, or of a rival's.
struct ExchangeLine {
  std::string_view operation;
  std::uint32_t tokens = 0;
  std::optional<double> bytes = {};  // a column of a file says none
  std::string contender;
  Method method = Method::batch;
  Launch launch = {};
  Verdict verdict = Verdict::ok;
  Figure figure = {};
};

void add_exchange(Table& table, const CsvArgs& args, const ExchangeLine& line) {
  std::vector<std::string> cells = {std::string(line.operation),
                                    "",
                                    "",
                                    std::to_string(args.ranks),
                                    "",
                                    "",
                                    std::to_string(line.tokens),
                                    "",
                                    line.bytes ? fmt::format("{:.0f}", *line.bytes) : "",
                                    line.contender,
                                    std::string(name(line.method)),
                                    or_empty(line.launch.blocks),
                                    or_empty(line.launch.threads),
                                    "",
                                    std::string(name(line.verdict))};
  const Figure figure = line.verdict == Verdict::ok ? line.figure : Figure{};
  add_figure(cells, figure);
  cells.push_back(figure.us > 0 && line.bytes ? number(*line.bytes / figure.us / 1e3) : "");
  const bool combines = line.operation == kMoeOperations[1];
  cells.push_back(combines ? "" : fmt::format("{}", fmt::join(args.payload_bytes, "+")));
  table.add(std::move(cells));
}

void add_exchanges(Table& table, const CsvArgs& args, const std::vector<MoeResult>& results) {
  for (const MoeResult& result : results) {
    for (std::size_t i = 0; i < kMoeOperations.size(); ++i)
      add_exchange(table, args,
                   {.operation = kMoeOperations[i],
                    .tokens = result.tokens,
                    .bytes = result.wire_bytes[i],
                    .contender = std::string(name(Contender::automatic)),
                    .method = result.method,
                    .launch = result.launch,
                    .verdict = result.wrong.empty() ? Verdict::ok : Verdict::wrong,
                    .figure = figure_of(result.samples[i])});
  }
  for (const MoeRival* rival : rivals_of(results)) {
    const Result& result = rival->result;
    add_exchange(table, args,
                 {.operation = kMoeOperations[rival->operation],
                  .tokens = static_cast<std::uint32_t>(result.point.rows),
                  .bytes = rival->wire_bytes + rival->moved_bytes,
                  .contender = name(*rival),
                  .method = result.point.method,
                  .launch = result.point.launch,
                  .verdict = result.verdict,
                  .figure = figure_of(result)});
  }
}

void add_columns(Table& table, const CsvArgs& args, const std::vector<BesideColumn>& columns) {
  for (const BesideColumn& column : columns) {
    const Result& result = column.point.result;
    add_exchange(table, args,
                 {.operation = column.point.operation,
                  .tokens = static_cast<std::uint32_t>(result.point.rows),
                  .contender = column.point.column,
                  .method = result.point.method,
                  .launch = result.point.launch,
                  .verdict = result.verdict,
                  .figure = figure_of(result)});
  }
}

}  // namespace

std::string to_csv(const CsvArgs& args, const std::vector<Result>& results, const std::vector<MoeResult>& exchanges,
                   const std::vector<BesideColumn>& columns) {
  Table table({"operation", "load",      "padding", "ranks",    "type",     "op",        "rows",    "hidden",
               "bytes",     "contender", "method",  "blocks",   "threads",  "algorithm", "verdict", "samples",
               "us_min",    "us_median", "us_max",  "gb_per_s", "payloads", "speed_up"});
  for (const Result& result : results) add_result(table, args, results, result);
  add_exchanges(table, args, exchanges);
  add_columns(table, args, columns);
  return table.csv();
}

}  // namespace weft::cli
