#include "bench/columns_file.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>

#include "bench/bench_options.hpp"
#include "common/table.hpp"
#include "weft/error.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

Error rejected(const std::string& file, const std::string& why) {
  return Error(Errc::invalid_argument, fmt::format("--columns {}: {}", file, why));
}

std::string in_words(const std::string& gpu) {
  return gpu.empty() ? "CPU ranks" : gpu;
}

void check_run(const json& whole, const std::string& file, const ColumnsOf& run) {
  const json shape = to_json(run.shape);
  for (const auto& [key, mine] : shape.items()) {
    const json& theirs = whole.at("of").at(key);
    if (theirs != mine)
      throw rejected(file, fmt::format("{} is {} there, and {} in this run", key, theirs.dump(), mine.dump()));
  }
  const auto gpu = whole.at("gpu").get<std::string>();
  if (gpu != run.gpu)
    throw rejected(file, fmt::format("was measured on {}, this run is on {}", in_words(gpu), in_words(run.gpu)));
}

ColumnPoint point_of(const json& entry, const std::string& column) {
  ColumnPoint point{.column = column + " (other run)",
                    .operation = entry.at("operation").get<std::string>(),
                    .digest = entry.at("digest").get<std::string>()};
  Result& result = point.result;
  result.point.rows = entry.at("tokens").get<std::int64_t>();
  result.point.method = entry.at("method") == name(Method::graph) ? Method::graph : Method::batch;
  result.point.launch.blocks = entry.at("sms").get<int>();
  result.verdict = entry.at("verdict") == name(Verdict::ok) ? Verdict::ok : Verdict::wrong;
  result.detail = entry.value("detail", std::string());
  result.samples_us = entry.at("samples_us").get<std::vector<std::vector<double>>>();
  result.us = operation_us(result);
  return point;
}

void check_point(const ColumnPoint& point, const std::string& file, const ColumnsOf& run) {
  const std::int64_t tokens = point.result.point.rows;
  if (std::ranges::find(run.tokens, tokens) == run.tokens.end())
    throw rejected(file, fmt::format("has {} tokens a rank, this run has {}", tokens, fmt::join(run.tokens, ", ")));
  if (std::ranges::find(run.columns, point.operation) == run.columns.end())
    throw rejected(file, fmt::format("{} of {}: weft {} shows {}", point.operation, point.column, run.shape.command,
                                     fmt::join(run.columns, ", ")));
  if (point.result.samples_us.size() != static_cast<std::size_t>(run.shape.ranks) || point.result.us <= 0)
    throw rejected(file, fmt::format("{} of {} has no samples of each rank", point.operation, point.column));
}

}  // namespace

nlohmann::json to_json(const ColumnPoint& point) {
  const Result& result = point.result;
  const Figure figure = figure_of(result);
  json out = {{"operation", point.operation},
              {"tokens", result.point.rows},
              {"contender", point.column},
              {"other_run", true},
              {"method", name(result.point.method)},
              {"sms", result.point.launch.blocks},
              {"verdict", name(result.verdict)},
              {"us", figure.us},
              {"us_min", figure.least},
              {"us_max", figure.most},
              {"samples_us", result.samples_us}};
  if (!result.detail.empty()) out["detail"] = result.detail;
  return out;
}

std::string columns_table(const std::vector<BesideColumn>& points, std::string_view weft) {
  if (points.empty()) return {};
  Table table({"tokens", "operation", "contender", "SMs", "µs", "Weft µs", "speed-up"}, 3);
  for (const auto& [point, us] : points) {
    const Result& result = point.result;
    const bool both = us > 0 && result.verdict == Verdict::ok;
    const int sms = result.point.launch.blocks;
    table.add({std::to_string(result.point.rows), point.operation, point.column, sms != 0 ? std::to_string(sms) : "-",
               cell(&result), us > 0 ? microseconds(us) : "-", both ? fmt::format("{:.2f}", result.us / us) : "-"});
  }
  return fmt::format(
      "{}(other run): of --columns, which says below what each contains. Weft: {}.\n"
      "speed-up: the other run's time over Weft's.\n",
      table.text(), weft);
}

std::vector<ColumnPoint> Columns::of(const RoutedTokens& tokens) const {
  std::vector<ColumnPoint> mine;
  for (const ColumnPoint& point : points) {
    if (point.result.point.rows != tokens.tokens) continue;
    if (point.digest != digest_of(tokens))
      throw rejected(file, fmt::format("{} tokens a rank have other experts than in this run: --tokens-out of this run "
                                       "has them",
                                       tokens.tokens));
    mine.push_back(point);
  }
  return mine;
}

Columns read_columns(const std::filesystem::path& file, const ColumnsOf& run) {
  Columns columns{.file = file.string()};
  if (file.empty()) return columns;
  std::ifstream in(file);
  if (!in) throw rejected(columns.file, "cannot be read");
  const json whole = json::parse(in, nullptr, /*allow_exceptions=*/false);
  const char* const other = "is not a file of bench/rivals.py";
  if (!whole.is_object() || whole.value("schema", json()) != "weft-columns-1") throw rejected(columns.file, other);
  try {
    check_run(whole, columns.file, run);
    for (const json& column : whole.at("columns")) {
      const auto rival = column.at("rival").get<std::string>();
      for (const json& entry : column.at("points")) {
        columns.points.push_back(point_of(entry, rival));
        check_point(columns.points.back(), columns.file, run);
      }
      columns.notes.push_back(
          fmt::format("{} (other run): version {}, {}; measured on {}", rival, column.at("version").get<std::string>(),
                      column.at("contains").get<std::string>(), whole.at("date").get<std::string>()));
    }
  } catch (const json::exception& error) {
    throw rejected(columns.file, fmt::format("{}, or a damaged one ({})", other, error.what()));
  }
  if (columns.points.empty()) throw rejected(columns.file, "has no column");
  return columns;
}

}  // namespace weft::cli
