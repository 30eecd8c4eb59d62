#include "bench/layer_tables.hpp"

#include <fmt/format.h>

#include "bench/bench_options.hpp"
#include "common/table.hpp"
#include "common/values.hpp"

namespace weft::cli {
namespace {

std::string sms_of(const LayerWay& way) {
  return way.sms != 0 ? std::to_string(way.sms) : "all";
}
std::string schedule_cell(const TimedLayer& timed) {
  return timed.chosen.empty() ? method_of(timed.way) : "auto: " + timed.chosen;
}
std::string ideal_cell(double ideal) {
  return ideal > 0 ? microseconds(ideal) : "";
}
std::string gain_cell(double ideal, double plain, double us) {
  return ideal > 0 && ideal < plain ? fmt::format("{:.0f} %", 100 * (plain - us) / (plain - ideal)) : "";
}
bool is_plain(const TimedLayer& timed) {
  return timed.part == TimedPart::layer && timed.way.schedule == LayerSchedule::plain && timed.way.peo == 0;
}
double weight_bytes(const LayerShape& shape) {
  const double numbers = 3.0 * shape.hidden * (double{1} * shape.intermediate * shape.local() + shape.shared);
  return numbers * bytes_of(shape.type);
}
std::string every_way(const std::vector<LayerRow>& rows, const LayerShape& shape) {
  Table table({"tokens", "schedule", "rows by", "rounds", "SMs", "layer µs", "ideal", "of its gain", "TB/s"}, 5);
  for (const LayerRow& row : rows) {
    const double plain = fastest_of(row, "plain");
    for (const TimedLayer& timed : row.timed) {
      if (timed.part != TimedPart::layer) continue;
      const LayerWay& way = timed.way;
      const double ideal = ideal_us(row, way);
      table.add({std::to_string(row.tokens), schedule_cell(timed), std::string(weft::name(way.path)), rounds_of(way),
                 sms_of(way), cell(timed.figure), ideal_cell(ideal), gain_cell(ideal, plain, timed.figure.us),
                 fmt::format("{:.2f}", 1e-6 * weight_bytes(shape) / timed.figure.us)});
    }
  }
  return table.text();
}

// Experts of peo have more processors than those of rounds.
std::string part_cell(const TimedLayer& timed) {
  return std::string(name(timed.part)) +
         (timed.part == TimedPart::experts && timed.way.peo != 0 ? " of peo's rounds" : "");
}

std::string every_part(const std::vector<LayerRow>& rows) {
  Table table({"tokens", "part", "rows by", "rounds", "SMs", "µs"}, 5);
  for (const LayerRow& row : rows) {
    for (const TimedLayer& timed : row.timed) {
      if (timed.part == TimedPart::layer) continue;
      table.add({std::to_string(row.tokens), part_cell(timed),
                 sends(timed.part) ? std::string(weft::name(timed.way.path)) : "-", rounds_of(timed.way),
                 sms_of(timed.way), cell(timed.figure)});
    }
  }
  return table.text();
}

std::string every_best(const std::vector<LayerRow>& rows, const LayerShape& shape) {
  Table table({"tokens", "best of", "rows by", "rounds", "SMs", "layer µs", "ideal", "of its gain", "over parts",
               "× plain", "× peo", "× combine-rounds"},
              2);
  for (const LayerRow& row : rows) {
    const double plain = fastest_of(row, "plain");
    const auto faster = [&](double us, std::string_view schedule) {
      const double other = fastest_of(row, schedule);
      return other > 0 ? fmt::format("{:.2f}", other / us) : "";
    };
    for (const TimedLayer* const timed : best_ways(row)) {
      const LayerWay& way = timed->way;
      const double ideal = ideal_us(row, way);
      table.add({std::to_string(row.tokens), schedule_cell(*timed), std::string(weft::name(way.path)), rounds_of(way),
                 sms_of(way), cell(timed->figure), ideal_cell(ideal), gain_cell(ideal, plain, timed->figure.us),
                 is_plain(*timed) ? microseconds(over_parts_us(row, *timed)) : "", faster(timed->figure.us, "plain"),
                 faster(timed->figure.us, "peo"), faster(timed->figure.us, "combine-rounds")});
    }
    for (const RowPath path : {RowPath::slots, RowPath::ring}) {
      const double ideal = signals_ideal_us(row, path, shape.local());
      if (ideal > 0)
        table.add({std::to_string(row.tokens), "(signals)", std::string(weft::name(path)), "-", "all", "-",
                   microseconds(ideal), "", "", faster(ideal, "plain"), faster(ideal, "peo"),
                   faster(ideal, "combine-rounds")});
    }
  }
  return table.text();
}

std::string every_other(const std::vector<LayerRow>& rows) {
  std::vector<BesideColumn> all;
  for (const LayerRow& row : rows)
    for (const ColumnPoint& other : row.others)
      all.push_back({.point = other, .weft_us = row.wrong.empty() ? fastest_operation(row, other.operation) : 0});
  const std::string text = columns_table(all, "the fastest layer of all schedules, or the part alone on all SMs");
  return text.empty() ? text : "\n" + text + "\n";
}

constexpr const char* kLegend =
    "SMs: of each part of communication but the last wait; the experts have the rest.\n"
    "ideal: what is left if a schedule hides all that it can, of parts that were timed alone (below). D, C: dispatch\n"
    "and combine. E: experts. U: up GEMM and activation. W: down GEMM. D1, C1: dispatch of the first round's rows, "
    "and\n"
    "combine of the last one's, on all SMs; what is left of D and C is on as many as the schedule has, and so are E\n"
    "and W in its rounds.\n"
    "  rounds           D1 + max(E, (D - D1) + (C - C1)) + C1\n"
    "  combine-rounds   D + U + max(W, C - C1) + C1\n"
    "  peo              as rounds; D and C are its dispatches and combines, and E has what its one part leaves\n"
    "  (signals)        max(E, D + C) + C1 of the last expert, E undivided: an ideal of signals instead of rounds\n"
    "of its gain: (plain - layer) / (plain - ideal), with the fastest plain layer. × plain: how many times as fast as\n"
    "that, the ideal for signals; × peo, × combine-rounds: as the fastest way of these. over parts: the plain layer -\n"
    "(dispatch + combine) - E. TB/s: weights streamed.\n"
    "peo: DeepEP's pull request 492 on this transport, by its overlap methods; it sends a row in each round that "
    "needs\n"
    "it. It awaits each round's combine apart, where the original awaits all at once, and is slower for it. Its\n"
    "method 4 divides combine alone, as combine-rounds. auto: as the layer's tuning table says (weft tune\n"
    "--operation layer), plain without one.\n"
    "Every output has the bits of one part after the other, and numbers of both GEMMs were compared with sums on the\n"
    "host. peo's have the bits of plain layers of its rounds, since it rounds each round's sums.\n";
constexpr const char* kSharedLegend =
    "shared expert: of the cast rows of all tokens, beside dispatch and what follows, or in front of a plain layer\n"
    "(shared first). The dispatch in front of the max hides it, and the rest of it is part of E or W. For signals all "
    "of\n"
    "it is part of E. over parts has that taken off, too.\n";
constexpr const char* kEmulationLegend =
    "One peer stands for all others: what their number costs is not seen. A token's row is read once for each of\n"
    "its owners. Every layer ends with its owner's sum over them; ideals and parts have it, too.\n";

}  // namespace

std::string layer_tables(const std::vector<LayerRow>& rows, const LayerShape& shape) {
  return fmt::format("{}\n{}\n{}{}{}{}{}{}", every_way(rows, shape), every_part(rows), every_best(rows, shape),
                     every_other(rows), kSpreadLegend, kLegend, shape.shared != 0 ? kSharedLegend : "",
                     shape.emulated != 0 ? kEmulationLegend : "");
}

nlohmann::json points_of(const std::vector<LayerRow>& rows) {
  nlohmann::json points = nlohmann::json::array();
  for (const LayerRow& row : rows) {
    for (const TimedLayer& timed : row.timed) {
      points.push_back({{"operation", name(timed.part)},
                        {"tokens", row.tokens},
                        {"contender", "automatic"},
                        {"schedule", schedule_of(timed.way)},
                        {"path", weft::name(timed.way.path)},
                        {"rounds", timed.way.rounds},
                        {"sms", timed.way.sms},
                        {"verdict", row.wrong.empty() ? "ok" : "wrong"},
                        {"us", timed.figure.us},
                        {"us_min", timed.figure.least},
                        {"us_max", timed.figure.most},
                        {"samples_us", timed.samples}});
      nlohmann::json& point = points.back();
      if (!timed.way.experts.empty()) point["experts"] = timed.way.experts;
      if (!timed.chosen.empty()) point["chosen"] = timed.chosen;
      if (timed.way.peo != 0 && timed.part == TimedPart::layer) point["overlap_method"] = timed.way.peo;
      if (timed.way.shared_first) point["shared_first"] = true;
      if (const double ideal = ideal_us(row, timed.way); timed.part == TimedPart::layer && ideal > 0)
        point["ideal_us"] = ideal;
      if (is_plain(timed)) point["over_parts_us"] = over_parts_us(row, timed);
      if (row.tile != GemmTile::automatic) point["gemm_tile"] = name(row.tile);
      if (!row.wrong.empty()) point["detail"] = row.wrong;
    }
    for (const ColumnPoint& other : row.others) points.push_back(cli::to_json(other));
  }
  return points;
}

nlohmann::json best_of(const std::vector<LayerRow>& rows, const LayerShape& shape) {
  nlohmann::json all = nlohmann::json::array();
  for (const LayerRow& row : rows) {
    const double plain = fastest_of(row, "plain");
    for (const TimedLayer* const timed : best_ways(row)) {
      const LayerWay& way = timed->way;
      all.push_back({{"tokens", row.tokens},
                     {"schedule", schedule_of(way)},
                     {"path", weft::name(way.path)},
                     {"rounds", way.rounds},
                     {"sms", way.sms},
                     {"us", timed->figure.us},
                     {"times_plain", plain / timed->figure.us}});
      if (const double peo = fastest_of(row, "peo"); peo > 0) all.back()["times_peo"] = peo / timed->figure.us;
      if (const double other = fastest_of(row, "combine-rounds"); other > 0)
        all.back()["times_combine_rounds"] = other / timed->figure.us;
      if (way.shared_first) all.back()["shared_first"] = true;
      if (!way.experts.empty()) all.back()["experts"] = way.experts;
      if (way.peo != 0) all.back()["overlap_method"] = way.peo;
      if (const double ideal = ideal_us(row, way); ideal > 0) {
        all.back()["ideal_us"] = ideal;
        if (ideal < plain) all.back()["of_its_gain"] = (plain - timed->figure.us) / (plain - ideal);
      }
    }
    for (const RowPath path : {RowPath::slots, RowPath::ring}) {
      const double ideal = signals_ideal_us(row, path, shape.local());
      if (ideal > 0)
        all.push_back({{"tokens", row.tokens},
                       {"schedule", "signals"},
                       {"path", weft::name(path)},
                       {"ideal_us", ideal},
                       {"times_plain", plain / ideal}});
    }
  }
  return all;
}

}  // namespace weft::cli
