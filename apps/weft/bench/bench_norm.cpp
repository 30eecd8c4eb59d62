// weft bench norm: all-reduces with residual and RMSNorm in one kernel, compared with the all-reduce alone.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/norm_measure.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "models/model_choice.hpp"
#include "weft/moe.hpp"

namespace weft::cli {
namespace {

struct NormBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::int64_t hidden = 4096;
  ModelChoice model;
  std::string tokens;
  std::string fp8 = "none", scales = "f32";
  bool gamma_plus_one = false, no_residual = false;
  std::string methods = "all";
  Launch launch = {};

  std::vector<std::int64_t> rows(Device device) const;
  NormForm form() const;
  void check_hidden(const NormForm& form) const;
  std::vector<Point> points(const Bench& bench, Device device) const;
  int run();
};

std::vector<std::int64_t> NormBench::rows(Device device) const {
  const char* usual = device == Device::cpu ? "1,4,16,64" : "1,2,4,8,16,32,64,128,256,512,1024,2048";
  return parse_counts(tokens.empty() ? usual : tokens, "--tokens", kMostRows);
}

NormForm NormBench::form() const {
  NormForm form{.residual = !no_residual,
                .gamma_plus_one = gamma_plus_one,
                .scale_type = scales == "ue8m0" ? ScaleType::ue8m0 : ScaleType::f32};
  if (fp8 == "fixed") form.fp8 = Fp8Scaling::fixed;
  if (fp8 == "per-token") form.fp8 = Fp8Scaling::per_token;
  if (fp8 == "per-128-columns") form.fp8 = Fp8Scaling::per_128_columns;
  if (form.scale_type == ScaleType::ue8m0 && (!form.fp8 || *form.fp8 == Fp8Scaling::fixed))
    throw Error(Errc::invalid_argument, fmt::format("--scales ue8m0: --fp8 {} makes no scales", fp8));
  return form;
}

// Throws if every rank would reject this width.
void NormBench::check_hidden(const NormForm& form) const {
  const std::int64_t unit = form.fp8 == Fp8Scaling::per_128_columns ? kScaleColumns : 8;
  if (hidden % unit != 0)
    throw Error(Errc::invalid_argument,
                fmt::format("{} {}: must be a multiple of {}{}", model.given() ? "hidden" : "--hidden", hidden, unit,
                            unit == 8 ? "" : " for --fp8 per-128-columns"));
}

std::vector<Point> NormBench::points(const Bench& bench, Device device) const {
  std::vector<Point> all;
  for (const auto count : rows(device)) {
    for (const auto method : methods_named(bench, methods)) {
      for (const auto operation : {Operation::all_reduce_rms_norm, Operation::all_reduce}) {
        for (const auto contender : bench.contenders(operation)) {
          all.push_back({.operation = operation,
                         .count = static_cast<std::size_t>(count * hidden),
                         .rows = count,
                         .hidden = hidden,
                         .type = options.type,
                         .contender = contender,
                         .method = method});
          if (operation == Operation::all_reduce_rms_norm) all.back().launch = launch;
        }
      }
    }
  }
  return all;
}

Table norm_table(const std::vector<Result>& results, Method method) {
  std::vector<std::string> columns = {"size"};
  std::vector<std::vector<std::string>> lines;
  std::vector<std::int64_t> rows;
  for (const auto& result : results) {
    if (result.point.method == method && std::count(rows.begin(), rows.end(), result.point.rows) == 0)
      rows.push_back(result.point.rows);
  }
  for (const auto count : rows) {
    const Result *fused = nullptr, *alone = nullptr;
    std::vector<std::string> cells, names = {"size"};
    for (const auto& result : results) {
      const Point& point = result.point;
      if (point.method != method || point.rows != count) continue;
      if (cells.empty())
        cells.push_back(fmt::format("{} [{}, {}]", format_bytes(point.bytes()), point.rows, point.hidden));
      const bool ours = point.contender == Contender::automatic;
      const bool with_norm = point.operation == Operation::all_reduce_rms_norm;
      if (ours) (with_norm ? fused : alone) = &result;
      names.push_back(with_norm ? fmt::format("fused {}", name(point.contender))
                                : fmt::format("{} alone", ours ? "all-reduce" : name(point.contender)));
      cells.push_back(cell(&result));
    }
    const bool both =
        fused != nullptr && alone != nullptr && fused->verdict == Verdict::ok && alone->verdict == Verdict::ok;
    cells.push_back(fused != nullptr ? fused->chosen : "");
    cells.push_back(both ? fmt::format("{:.2f}", fused->us - alone->us) : "-");
    columns = names;
    lines.push_back(cells);
  }
  columns.insert(columns.end(), {"chosen", "norm"});
  Table table(columns);
  for (const auto& line : lines) table.add(line);
  return table;
}

int NormBench::run() {
  if (model.given()) hidden = model.shape().hidden;
  static_cast<void>(rows(Device::cpu));  // complains of bad sizes before anything is started
  const NormForm form = this->form();
  check_hidden(form);
  Ranks ranks(options.ranks_args());
  const auto counts = rows(ranks.device());
  const auto largest = static_cast<std::size_t>(*std::max_element(counts.begin(), counts.end()) * hidden);
  const auto bench = open_norm_bench(ranks, options.bench_args(largest * size_of(options.type)), form);
  const auto results = run_points(ranks, *bench, points(*bench, ranks.device()), options.samples);
  const bool correct = all_correct(results);
  if (!ranks.leader()) return correct ? 0 : 1;

  const Crowd crowd = crowd_of(ranks, results);
  auto notes = bench->notes();
  if (const std::string note = unused_tuning(ranks, options.tuning); !note.empty()) notes.push_back(note);
  if (options.tables_on_stdout()) {
    fmt::print("All-reduce, {}RMSNorm{}, {}, fp8 {}{}, µs per operation\n{}\n{}", no_residual ? "" : "residual and ",
               gamma_plus_one ? " with 1 + γ" : "", name(options.type), fp8, scales == "f32" ? "" : ", UE8M0 scales",
               headline(ranks, options), crowd.warning());
    print_tables(methods_named(*bench, methods), [&](Method method) { return norm_table(results, method); });
    fmt::print("\n{}\n{}alone: without residual and norm. norm: time of the fused form beyond Weft's all-reduce.\n",
               verdict_line(compared(results)), kSpreadLegend);
    for (const auto& note : notes) fmt::print("{}\n", note);
    fmt::print("{}", crowd.warning());
  }
  options.write_results({"bench norm", arguments, notes, crowd}, ranks, results);
  return correct ? 0 : 1;
}

}  // namespace

Command add_bench_norm(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<NormBench>();
  bench->arguments = arguments;
  auto* hidden = app.add_option("--hidden", bench->hidden, "Elements per row, a multiple of 8")
                     ->check(whole_number(8, 65536))
                     ->capture_default_str();
  bench->model.add_to(app, "--model", "… or the rows of a model");
  bench->model.excludes(hidden);
  app.add_option("--tokens", bench->tokens, "Rows, \"1,8,128\" (default: 1 to 2048 on GPUs)");
  app.add_option("--fp8", bench->fp8, "Also write rows as e4m3; the value names the numbers that share a scale")
      ->check(CLI::IsMember({"none", "fixed", "per-token", "per-128-columns"}))
      ->capture_default_str();
  app.add_option("--scales", bench->scales, "Type of the scales of --fp8 per-token and per-128-columns")
      ->check(CLI::IsMember({"f32", "ue8m0"}))
      ->capture_default_str();
  app.add_flag("--gamma-plus-one", bench->gamma_plus_one, "Weights are 1 + γ, as in Gemma");
  app.add_flag("--no-residual", bench->no_residual, "Without a residual, as in a model's first block");
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16}, "Element type");
  add_method(app, bench->methods);
  add_launch(app, bench->launch, "the fused kernel", 1024);
  bench->options.add_to(app);
  bench->options.add_data_to(app);
  bench->options.add_tuning_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
