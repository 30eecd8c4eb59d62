// weft info: the abilities of this build and this machine, and the memory that a communicator would take.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "base/build_info.hpp"
#include "bench/bench_options.hpp"
#include "common/commands.hpp"
#include "common/options.hpp"
#include "common/sizes.hpp"
#include "common/tuning_note.hpp"
#include "common/values.hpp"
#include "models/info_moe.hpp"
#include "models/model_choice.hpp"
#include "models/moe_cast.hpp"
#include "ops/moe/exchange.hpp"

namespace weft::cli {
namespace {

struct Info {
  std::vector<std::string> arguments;
  int ranks = 0;
  Device device = Device::automatic;
  std::string tuning;
  bool multicast = false;
  std::string json;
  std::string csv;
  ModelChoice moe;
  MoeWaysArgs ways;
  std::int64_t hidden = 0, experts = 0, top_k = 0;  // instead of the model's, if not 0

  bool text_on_stdout() const { return json != "-" && csv != "-"; }
  void write(const std::string& lines, const Machine& machine, const char* key, const nlohmann::json& value) const;
  ModelShape model() const;
  int run() const;
  int run_moe() const;
};

std::string or_none(const std::string& text) {
  return text.empty() ? "none" : text;
}

std::string links_of(const Gpu& gpu) {
  if (gpu.links.present == 0) return "-";
  return fmt::format("{} of {} × {:.1f} GB/s", gpu.links.up, gpu.links.present, gpu.links.gb_per_s);
}

Table gpu_table(const Machine& machine) {
  std::vector<std::string> columns = {"GPU", "name", "memory", "SMs", "arch", "NVLinks up"};
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) columns.push_back(fmt::format("to {}", g));
  Table table(columns);
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    const Gpu& gpu = machine.gpus[g];
    std::vector<std::string> cells = {std::to_string(g),        gpu.name,
                                      format_bytes(gpu.memory), std::to_string(gpu.multiprocessors),
                                      gpu.architecture,         links_of(gpu)};
    cells.insert(cells.end(), gpu.reach.begin(), gpu.reach.end());
    table.add(cells);
  }
  return table;
}

// The same facts for programs.
std::string gpu_csv(const Machine& machine) {
  std::vector<std::string> columns = {"gpu",  "name",       "memory_bytes",    "multiprocessors",
                                      "arch", "nvlinks_up", "nvlinks_present", "nvlink_gb_per_s"};
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) columns.push_back(fmt::format("to_{}", g));
  Table table(columns);
  for (std::size_t g = 0; g < machine.gpus.size(); ++g) {
    const Gpu& gpu = machine.gpus[g];
    std::vector<std::string> cells = {std::to_string(g),
                                      gpu.name,
                                      std::to_string(gpu.memory),
                                      std::to_string(gpu.multiprocessors),
                                      gpu.architecture,
                                      std::to_string(gpu.links.up),
                                      std::to_string(gpu.links.present),
                                      gpu.links.present != 0 ? fmt::format("{:.3f}", gpu.links.gb_per_s) : ""};
    cells.insert(cells.end(), gpu.reach.begin(), gpu.reach.end());
    table.add(cells);
  }
  return table.csv();
}

void print(const Machine& machine, const Table& gpus) {
  const auto& build = detail::build_info();
  fmt::print("weft {} at {}{}, {}, {}\n", build.version, build.commit, build.dirty ? " with uncommitted changes" : "",
             build.build_type, build.compiler);
  fmt::print("CUDA: built with {}, runtime {}, driver supports {}\n", build.cuda, or_none(machine.cuda_runtime),
             or_none(machine.driver));
  fmt::print("NCCL: built with {}, found {}", or_none(machine.nccl_compiled), or_none(machine.nccl_runtime));
  if (!machine.nccl_path.empty()) fmt::print(": {} ({})", machine.nccl_path, machine.nccl_origin);
  fmt::print("\n");
  for (const std::string& note : machine.nccl_notes) fmt::print("  {}\n", note);
  fmt::print("CPU: {}, {} cores\n", machine.cpu, machine.cores);
  if (!machine.gpus.empty()) fmt::print("\n{}", gpus.text());  // GPUs are listed even if they cannot be used
  if (!machine.cuda_problem.empty()) fmt::print("GPU ranks: not usable: {}\n", machine.cuda_problem);
  fmt::print("CPU ranks: usable, over shared memory\n");
}

// Writes the files of --csv and --json.
void Info::write(const std::string& lines, const Machine& machine, const char* key, const nlohmann::json& value) const {
  if (!csv.empty()) write_text(csv, lines);
  if (json.empty()) return;
  // Not part of the machine: results of one machine are kept under one name, and its NCCL may lie anywhere.
  const nlohmann::json nccl = {{"version", machine.nccl_runtime},
                               {"path", machine.nccl_path},
                               {"origin", machine.nccl_origin},
                               {"notes", machine.nccl_notes}};
  const nlohmann::json whole = {
      {"schema", "weft-info-1"},     {"date", now()}, {"arguments", arguments}, {"build", build_json()}, {"nccl", nccl},
      {"machine", to_json(machine)}, {key, value}};
  write_text(json, whole.dump(1) + "\n");
}

ModelShape Info::model() const {
  ModelShape model = moe.shape_with_experts();
  if (hidden != 0) model.hidden = hidden, model.latent = 0;
  if (experts != 0) model.num_experts = experts;
  if (top_k != 0) model.top_k = top_k;
  if (hidden != 0 || experts != 0 || top_k != 0) model.name += ", changed";
  return model;
}

int Info::run_moe() const {
  MoeWaysArgs args = ways;
  if (ranks != 0) args.ranks = ranks;
  const ModelShape shape = model();
  const std::vector<MoeWay> memory = moe_ways(shape, args);
  if (text_on_stdout()) {
    fmt::print("Dispatch and combine of {}, {} tokens per rank, {} ranks: memory on each rank\n{}\n\n{}\n{}",
               shape.name, args.tokens, args.ranks, in_words(shape), moe_table(memory).text(), kMoeLegend);
    if (const std::string note = cast_note(shape); !args.cast && !note.empty()) fmt::print("{}\n", note);
  }
  write(to_csv(memory), describe_machine(), "moe",
        {{"model", shape.name},
         {"shape", to_json(shape)},
         {"tokens", args.tokens},
         {"ranks", args.ranks},
         {"memory", to_json(memory)}});
  return 0;
}

int Info::run() const {
  check_outputs({{"--json", json}, {"--csv", csv}});
  if (moe.given()) return run_moe();
  const Machine machine = describe_machine();
  const Table gpus = gpu_table(machine);
  const bool text = text_on_stdout();
  if (text) print(machine, gpus);

  nlohmann::json communicator;
  int code = 0;
  try {
    Ranks::Args args{.world_size = ranks, .device = device};
    args.config.tuning_file = tuning;
    args.config.multicast = multicast;
    Ranks all(args);
    const MemoryUse memory = all.first().memory();
    const std::string unused = unused_tuning(all, tuning);
    communicator = {{"ranks", all.world_size()},
                    {"device", name(all.device())},
                    {"fabric", all.first().fabric()},
                    {"tuning", all.first().tuning()},
                    {"window_bytes", memory.window},
                    {"control_bytes", memory.control},
                    {"multicast", all.first().multicast()},
                    {"layer_tuning", layer_tuning(all)},
                    {"exchange_tuning", exchange_tuning(all)},
                    {"unused_tuning", unused}};
    if (text && all.leader())
      fmt::print("\nA communicator of these ranks ({}) takes {} of symmetric memory and {} for control on each rank\n",
                 all.first().fabric(), format_bytes(memory.window), format_bytes(memory.control));
    if (text && all.leader())
      fmt::print("Its all-reduces are tuned by: {}\n{}NVLink multicast: {}\n", all.first().tuning(),
                 unused.empty() ? "" : unused + "\n", all.first().multicast());
    if (text && all.leader())
      for (const std::string& one : layer_tuning(all)) fmt::print("Its layers of experts are tuned by: {}\n", one);
    if (text && all.leader())
      for (const std::string& one : exchange_tuning(all))
        fmt::print("Its dispatches and combines are tuned by: {}\n", one);
  } catch (const Error& error) {
    if (error.code() == Errc::invalid_argument) throw;
    communicator = {{"error", error.what()}};
    code = 1;
    fmt::print(stderr, "No communicator: {}\n", error.what());
  }
  write(gpu_csv(machine), machine, "communicator", communicator);
  return code;
}

// Options that need --moe or --config.
std::vector<CLI::Option*> add_moe_options(CLI::App& app, Info& info) {
  constexpr RowLayout kLayouts[] = {RowLayout::expert_masked, RowLayout::expert_contiguous, RowLayout::rank_major,
                                    RowLayout::rank_compact};
  std::vector<std::string> casts, layouts;
  for (const auto& cast : kCastNames) casts.emplace_back(cast.second);
  for (const RowLayout layout : kLayouts) layouts.emplace_back(name(layout));
  const auto choose_layout = [&info, kLayouts](const std::string& word) {
    info.ways.layout = *std::ranges::find(kLayouts, word, [](RowLayout layout) { return name(layout); });
  };
  const auto choose_cast = [&info](const std::string& word) { info.ways.cast = cast_of(word); };
  return {app.add_option("--tokens", info.ways.tokens, "Tokens per rank, for --moe and --config")
              ->check(whole_number(1, detail::kMaxExchangeTokens))
              ->capture_default_str(),
          app.add_option("--hidden", info.hidden, "Columns of a row, instead of the model's")
              ->check(whole_number(1, 1 << 20)),
          app.add_option("--experts", info.experts, "Experts of all ranks, instead of the model's")
              ->check(whole_number(1, detail::kMaxExperts)),
          app.add_option("--top-k", info.top_k, "Experts of a token, instead of the model's")
              ->check(whole_number(1, detail::kMaxTopK)),
          app.add_option_function<std::string>("--layout", choose_layout,
                                               "Only what gives the experts rows in this layout (default: all)")
              ->check(CLI::IsMember(layouts)),
          app.add_option_function<std::string>("--dispatch", choose_cast,
                                               "Only rows sent as these (default: bf16, and fp8 if 128 divides hidden)")
              ->check(CLI::IsMember(casts))};
}

}  // namespace

Command add_info(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto info = std::make_shared<Info>();
  info->arguments = arguments;
  app.add_option("--ranks", info->ranks, "Ranks whose memory is shown (default: as in bench; with --moe 8)")
      ->check(whole_number(1, 72));
  add_choice(app, "--device", info->device, {Device::automatic, Device::cpu, Device::cuda}, "Device of the ranks");
  info->moe.add_to(app, "--moe",
                   "Show the memory of this model's dispatch and combine instead, beside other libraries'");
  const std::vector<CLI::Option*> of_moe = add_moe_options(app, *info);
  info->moe.excludes(app.add_flag("--multicast", info->multicast, "Ask for NVLink multicast (Config::multicast)"));
  info->moe.excludes(
      app.add_option("--tuning", info->tuning, "Tables of weft tune to use instead of the built-in ones"));
  app.add_option("--json", info->json, "Write everything to this file (-: stdout)");
  app.add_option("--csv", info->csv, "Write the table of GPUs, or of --moe, to this file (-: stdout)");
  return [info, of_moe] {
    for (const CLI::Option* option : of_moe) {
      if (option->count() != 0 && !info->moe.given())
        throw Error(Errc::invalid_argument, option->get_name() + ": needs --moe or --config");
    }
    return info->run();
  };
}

}  // namespace weft::cli
