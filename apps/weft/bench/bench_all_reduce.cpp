// weft bench all-reduce: one row per size, one column per algorithm and peer.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "bench/bench_options.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

constexpr std::int64_t kMostLaunch = 1024;  // blocks, or threads of a block

struct AllReduceBench {
  std::vector<std::string> arguments;
  BenchOptions options;
  std::int64_t hidden = 8192;
  std::string rows;
  std::string bytes;
  std::string algorithm = "all";
  std::string blocks;
  std::string threads;
  std::string methods = "all";
  std::string torch_json;
  bool sweep = false;

  std::vector<Point> sizes(Device device) const;
  std::vector<Contender> wanted_contenders(const Bench& bench) const;
  std::vector<Launch> launches(Device device) const;
  int run() const;
};

// For GPUs: the row counts of vLLM's benchmark of device communicators. For CPU ranks: sizes that they move quickly.
std::vector<Point> AllReduceBench::sizes(Device device) const {
  std::vector<Point> points;
  const Point base{.type = options.type, .op = options.op};
  if (!bytes.empty() || (rows.empty() && device == Device::cpu)) {
    for (const auto size : parse_bytes_list(bytes.empty() ? "1K,4K,16K,64K,256K,1M,4M" : bytes)) {
      if (size % size_of(options.type) != 0)
        throw Error(Errc::invalid_argument, fmt::format("--bytes {}: must be a multiple of {}, the size of {}", size,
                                                        size_of(options.type), name(options.type)));
      points.push_back(base);
      points.back().count = size / size_of(options.type);
    }
    return points;
  }
  for (const auto row : parse_counts(rows.empty() ? "1,4,8,16,32,64,96,128,192,256,512,1024,2048,3062,4096" : rows,
                                     "--rows", kMostRows)) {
    points.push_back(base);
    points.back().count = static_cast<std::size_t>(row * hidden);
    points.back().rows = row;
    points.back().hidden = hidden;
  }
  return points;
}

std::vector<Contender> AllReduceBench::wanted_contenders(const Bench& bench) const {
  std::vector<Contender> wanted;
  for (const auto contender : bench.contenders()) {
    const bool ours = is_weft(contender);
    if (algorithm != "all" && ours && name(contender) != algorithm) continue;
    if (sweep && (!ours || (contender == Contender::automatic && algorithm == "all"))) continue;
    wanted.push_back(contender);
  }
  return wanted;
}

// Launches to try: the default alone, the one that the options name, or a sweep's grid, which begins with the default.
std::vector<Launch> AllReduceBench::launches(Device device) const {
  const bool gpu = device == Device::cuda;
  const auto list = [&](const std::string& text, const char* what, const char* grid) {
    if (!text.empty()) return parse_counts(text, what, kMostLaunch);
    return sweep ? parse_counts(grid, what, kMostLaunch) : std::vector<std::int64_t>{0};
  };
  const auto some_blocks = list(blocks, "--blocks", gpu ? "2,4,8,12,16,24,32,48,64,80,96,112,132" : "2");
  const auto some_threads = list(threads, "--threads", gpu ? "64,128,192,256,384,512,1024" : "32");
  if (!sweep && (some_blocks.size() > 1 || some_threads.size() > 1))
    throw Error(Errc::invalid_argument, "--blocks, --threads: several values need --sweep");
  std::vector<Launch> all;
  if (sweep) all.emplace_back();
  for (const auto b : some_blocks)
    for (const auto t : some_threads) all.push_back({.blocks = static_cast<int>(b), .threads = static_cast<int>(t)});
  return all;
}

std::string label(const Point& point) {
  if (point.rows == 0) return format_bytes(point.bytes());
  return fmt::format("{} [{}, {}]", format_bytes(point.bytes()), point.rows, point.hidden);
}

// Weft's result in a comparison: the automatic choice, or the fastest of the measured algorithms.
const Result* weft_result(const std::vector<Result>& results, std::size_t bytes, Method method) {
  const Result* automatic = find(results, bytes, Contender::automatic, method);
  return automatic != nullptr ? automatic : fastest(results, bytes, method, is_weft);
}

Table table_of(const std::vector<Point>& sizes, const std::vector<Result>& results, Method method, const Crowd& crowd) {
  const std::vector<Contender> contenders = contenders_in(results, method);
  std::vector<std::string> columns = {"size"};
  for (const auto contender : contenders) columns.emplace_back(name(contender));
  columns.insert(columns.end(), {"chosen", "best", "GB/s", "speed-up"});
  Table table(columns);
  for (const auto& size : sizes) {
    std::vector<std::string> cells = {label(size)};
    for (const auto contender : contenders) cells.push_back(cell(find(results, size.bytes(), contender, method)));
    const Result* ours = weft_result(results, size.bytes(), method);
    const Result* best = fastest(results, size.bytes(), method, [](Contender) { return true; });
    cells.push_back(ours != nullptr ? ours->chosen : "");
    cells.push_back(best != nullptr ? std::string(name(best->point.contender)) : "-");
    cells.push_back(ours != nullptr && ours->verdict == Verdict::ok ? fmt::format("{:.2f}", ours->gb_per_s()) : "-");
    cells.push_back(ours != nullptr ? cell(speed_up(*ours, best_peer(results, ours->point), crowd)) : "-");
    table.add(cells);
  }
  return table;
}

Table sweep_table(const std::vector<Point>& sizes, const std::vector<Contender>& contenders,
                  const std::vector<Result>& results, Method method) {
  Table table({"size", "algorithm", "best blocks × threads", "µs", "default µs", "gain"});
  for (const auto& size : sizes) {
    for (const auto contender : contenders) {
      const Result* usual = find(results, size.bytes(), contender, method);  // the default is tried first
      const Result* best = nullptr;
      for (const auto& result : results) {
        const Point& point = result.point;
        if (point.bytes() != size.bytes() || point.contender != contender || point.launch.blocks == 0) continue;
        if (result.verdict == Verdict::ok && (best == nullptr || result.us < best->us)) best = &result;
      }
      if (best == nullptr || usual == nullptr) continue;
      table.add({label(size), std::string(name(contender)),
                 fmt::format("{} × {}", best->point.launch.blocks, best->point.launch.threads), cell(best), cell(usual),
                 usual->verdict == Verdict::ok ? fmt::format("{:.2f}", usual->us / best->us) : "-"});
    }
  }
  return table;
}

int AllReduceBench::run() const {
  sizes(Device::cpu);  // complains of bad sizes before anything is started
  if (algorithm.starts_with("multimem") && !options.multicast)
    throw Error(Errc::invalid_argument, fmt::format("--algorithm {}: needs --multicast", algorithm));
  Ranks ranks(options.ranks_args());
  const auto all_sizes = sizes(ranks.device());
  std::size_t largest = 0;
  for (const auto& size : all_sizes) largest = std::max(largest, size.bytes());
  const TorchRun torch =
      torch_json.empty() ? TorchRun{} : read_torch_run(torch_json, ranks.world_size(), gpu_of(ranks));
  const auto tried = launches(ranks.device());

  const auto bench = open_bench(ranks, options.bench_args(largest));
  auto some_methods = methods_named(*bench, methods);
  if (sweep && methods == "all") some_methods.resize(1);
  const auto contenders = wanted_contenders(*bench);
  std::vector<Point> points;
  for (const auto& size : all_sizes) {
    for (const auto method : some_methods) {
      for (const auto contender : contenders) {
        for (const auto& launch : tried) {
          points.push_back(size);
          points.back().method = method;
          points.back().contender = contender;
          if (!is_peer(contender)) points.back().launch = launch;
        }
      }
    }
  }
  auto results = run_points(ranks, *bench, points, options.samples);
  const bool correct = all_correct(results);
  if (!ranks.leader()) return correct ? 0 : 1;

  results.insert(results.end(), torch.results.begin(), torch.results.end());
  auto notes = bench->notes();
  if (!torch.about.empty()) notes.push_back(torch.about);
  if (const std::string note = unused_tuning(ranks, options.tuning); !note.empty()) notes.push_back(note);

  const Crowd crowd = crowd_of(ranks, results);
  if (options.tables_on_stdout()) {
    fmt::print("All-reduce, {} {}, µs per operation\n{}\n{}", name(options.type), name(options.op),
               headline(ranks, options), crowd.warning());
    print_tables(some_methods, [&](Method method) {
      return sweep ? sweep_table(all_sizes, contenders, results, method) : table_of(all_sizes, results, method, crowd);
    });
    fmt::print("\n{}\n{}", verdict_line(compared(results)), kSpreadLegend);
    fmt::print(
        "GB/s, speed-up: for \"automatic\": bytes of one rank's buffer over the time, best peer's time over it.\n");
    for (const auto& note : notes) fmt::print("{}\n", note);
    fmt::print("{}", crowd.warning());
  }
  options.write_results({"bench all-reduce", arguments, notes, crowd}, ranks, results);
  return correct ? 0 : 1;
}

}  // namespace

Command add_bench_all_reduce(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto bench = std::make_shared<AllReduceBench>();
  bench->arguments = arguments;
  app.add_option("--hidden", bench->hidden, "Elements per row")->check(whole_number(1, 1 << 20))->capture_default_str();
  auto* rows = app.add_option("--rows", bench->rows, "Rows (tokens) of --hidden elements, \"32,64,128\"");
  app.add_option("--bytes", bench->bytes, "Sizes in bytes instead, \"16K,64K,1.5M\"")->excludes(rows);
  add_choice(app, "--dtype", bench->options.type, {DataType::bf16, DataType::f16, DataType::f32, DataType::i32},
             "Element type");
  app.add_option("--algorithm", bench->algorithm, "Measure this algorithm of Weft's; peers are always measured")
      ->check(CLI::IsMember(
          {"all", "automatic", "one-shot", "two-shot", "pipelined", "multimem-one-shot", "multimem-two-shot"}))
      ->capture_default_str();
  app.add_flag("--multicast", bench->options.multicast,
               "Ask for NVLink multicast (Config::multicast), and measure the multimem algorithms as well");
  add_method(app, bench->methods);
  app.add_option("--blocks", bench->blocks,
                 "Blocks of Weft's kernels, 2 to one more than a GPU's SMs; several with --sweep, \"16,32\" (default: "
                 "chosen by size)");
  app.add_option("--threads", bench->threads,
                 "Threads per block, a multiple of 32; several with --sweep (default: chosen by size)");
  app.add_flag("--sweep", bench->sweep, "Try many grids per size and algorithm and print the best");
  app.add_option("--torch-json", bench->torch_json, "Columns from a file that bench/torch_peer.py wrote");
  bench->options.add_op_to(app);
  bench->options.add_to(app);
  bench->options.add_data_to(app);
  bench->options.add_tuning_to(app);
  return [bench] { return bench->run(); };
}

}  // namespace weft::cli
