// weft bench logits: gathers of a vocabulary's logits, beside a gather of shards that are then put into rows.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "bench/bench_options.hpp"
#include "bench/logits_measure.hpp"
#include "bench/logits_tables.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/values.hpp"
#include "weft/top_k.hpp"

namespace weft::cli {
namespace {

constexpr std::int64_t kMostColumns = 1 << 21;

struct LogitsBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  LogitsForm form{.vocabulary = 129280};  // DeepSeek-V3's
  std::string tokens;
  std::string methods = "all";
  Launch launch = {};

  void check_form() const;
  std::vector<std::int64_t> counts(Device device) const;
  std::vector<Point> points(const Bench& bench, Device device) const;
  int run() const;
};

void LogitsBench::check_form() const {
  if (!std::isfinite(form.scale) || !std::isfinite(form.soft_cap) || form.soft_cap < 0)
    throw Error(Errc::invalid_argument, fmt::format("--scale {} and --soft-cap {}: must be finite, a cap 0 or more",
                                                    form.scale, form.soft_cap));
  if (form.top_k != 0 && (form.output_f32 || form.scale != 1.0f || form.soft_cap != 0))
    throw Error(Errc::invalid_argument, "--top-k: candidates are not widened, scaled or capped");
  if (form.top_k != 0 && form.groups != 1)
    throw Error(Errc::invalid_argument, "--top-k: every rank gets all candidates, so there is no --dp");
  if (form.top_k > static_cast<std::size_t>(form.vocabulary))
    throw Error(Errc::invalid_argument,
                fmt::format("--top-k {}: must be at most {}, the --vocabulary", form.top_k, form.vocabulary));
}

std::vector<std::int64_t> LogitsBench::counts(Device device) const {
  const char* usual = device == Device::cpu ? "1,8,64" : "1,8,32,64,128,256";
  return parse_counts(tokens.empty() ? usual : tokens, "--tokens", kMostRows);
}

std::vector<Point> LogitsBench::points(const Bench& bench, Device device) const {
  std::vector<Point> all;
  for (const auto count : counts(device)) {
    for (const auto contender : bench.contenders(Operation::all_gather_columns)) {
      for (const auto method : methods_named(bench, methods)) {
        all.push_back({.operation = Operation::all_gather_columns,
                       .count = static_cast<std::size_t>(count * form.vocabulary),
                       .rows = count,
                       .hidden = form.vocabulary,
                       .type = options.type,
                       .contender = contender,
                       .method = method,
                       .launch = is_peer(contender) ? Launch{} : launch});
      }
    }
  }
  return all;
}

int LogitsBench::run() const {
  check_form();
  static_cast<void>(counts(Device::cpu));  // complains of bad numbers before anything is started
  Ranks ranks(options.ranks_args());
  if (static_cast<std::size_t>(ranks.world_size()) % form.groups != 0)
    throw Error(Errc::invalid_argument,
                fmt::format("--dp {}: is no divisor of the {} ranks", form.groups, ranks.world_size()));
  std::size_t largest = 0;
  for (const auto count : counts(ranks.device()))
    largest = std::max(largest, logits_bytes(form, {.rows = count, .type = options.type}, ranks.world_size()));
  const auto bench = form.top_k != 0 ? open_top_k_bench(ranks, options.bench_args(largest), form)
                                     : open_logits_bench(ranks, options.bench_args(largest), form);
  const auto results = run_points(ranks, *bench, points(*bench, ranks.device()), options.samples);
  const bool correct = all_correct(results);
  if (!ranks.leader()) return correct ? 0 : 1;

  const Crowd crowd = crowd_of(ranks, results);
  const auto notes = bench->notes();
  if (options.tables_on_stdout()) {
    std::string what = form.top_k != 0 ? fmt::format("The {} largest", form.top_k) : "Logits";
    if (form.groups != 1) what += fmt::format(" for {} groups", form.groups);
    fmt::print("{} of {} columns, {} of each rank, {}{}{}, µs per operation\n{}\n{}", what, form.vocabulary,
               form.shard(ranks.world_size()), name(options.type), form.output_f32 ? " to f32" : "",
               form.scale != 1.0f || form.soft_cap != 0
                   ? fmt::format(", scale {}, soft cap {}", form.scale, form.soft_cap)
                   : "",
               headline(ranks, options), crowd.warning());
    print_tables(methods_named(*bench, methods), [&](Method method) { return logits_table(results, method, crowd); });
    fmt::print("\n{}\n{}{}", verdict_line(compared(results)), kSpreadLegend, logits_legend(form));
    for (const auto& note : notes) fmt::print("{}\n", note);
    fmt::print("{}", crowd.warning());
  }
  options.write_results({"bench logits", arguments, notes, crowd}, ranks, results);
  return correct ? 0 : 1;
}

}  // namespace

Command add_bench_logits(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<LogitsBench>();
  bench->arguments = arguments;
  app.add_option("--vocabulary", bench->form.vocabulary, "Columns of a row")
      ->check(whole_number(1, kMostColumns))
      ->capture_default_str();
  app.add_option("--tokens", bench->tokens, "Rows, one for each token, \"1,8,64\" (default: 1 to 256 on GPUs)");
  app.add_flag("--f32", bench->form.output_f32, "Weft widens elements to f32");
  app.add_option("--scale", bench->form.scale, "Weft multiplies elements by this number")->capture_default_str();
  app.add_option("--soft-cap", bench->form.soft_cap, "Weft caps elements: cap · tanh(x · (scale / cap)); 0: not")
      ->capture_default_str();
  app.add_option("--top-k", bench->form.top_k,
                 "Weft finds the largest of each row, 1 to 64, and peers gather all logits (0: all are gathered)")
      ->check(whole_number(0, kMaxCandidates))
      ->capture_default_str();
  app.add_option("--dp", bench->form.groups,
                 "Attention groups: each rank gets its own group's rows alone (all_to_all_columns), peers get all")
      ->check(whole_number(1, detail::kMaxRanks))
      ->capture_default_str();
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16, DataType::f32}, "Element type");
  add_method(app, bench->methods);
  add_launch(app, bench->launch, "Weft's kernel, and so the most SMs that it uses");
  bench->options.add_to(app);
  bench->options.add_data_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
