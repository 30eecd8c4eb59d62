// weft info: the abilities of this build and this machine, and the memory that a communicator would take.
#include <fmt/format.h>

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
  std::uint32_t tokens = 128;

  bool text_on_stdout() const { return json != "-" && csv != "-"; }
  void write(const std::string& lines, const Machine& machine, const char* key, const nlohmann::json& value) const;
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
  fmt::print("NCCL: built with {}, found {}\n", or_none(machine.nccl_compiled), or_none(machine.nccl_runtime));
  fmt::print("CPU: {}, {} cores\n", machine.cpu, machine.cores);
  if (!machine.gpus.empty()) fmt::print("\n{}", gpus.text());  // GPUs are listed even if they cannot be used
  if (!machine.cuda_problem.empty()) fmt::print("GPU ranks: not usable: {}\n", machine.cuda_problem);
  fmt::print("CPU ranks: usable, over shared memory\n");
}

// Writes the files of --csv and --json.
void Info::write(const std::string& lines, const Machine& machine, const char* key, const nlohmann::json& value) const {
  if (!csv.empty()) write_text(csv, lines);
  if (json.empty()) return;
  const nlohmann::json whole = {{"schema", "weft-info-1"},     {"date", now()},
                                {"arguments", arguments},      {"build", build_json()},
                                {"machine", to_json(machine)}, {key, value}};
  write_text(json, whole.dump(1) + "\n");
}

int Info::run_moe() const {
  const int size = ranks != 0 ? ranks : 8;
  const ModelShape shape = moe.shape_with_experts();
  const std::vector<MoeMemory> memory = moe_memory(shape, size, tokens);
  const Table table = moe_memory_table(memory);
  if (text_on_stdout()) {
    fmt::print("Dispatch and combine of {}, {} tokens per rank, {} ranks: memory on each rank\n{}\n\n{}\n", shape.name,
               tokens, size, in_words(shape), table.text());
    fmt::print(
        "dispatch, combine: receive buffers of one bank; DeepEP, NCCL EP: their low-latency buffers,\ncomputed\n");
    if (const std::string note = cast_note(shape); !note.empty()) fmt::print("{}\n", note);
  }
  write(to_csv(memory), describe_machine(), "moe",
        {{"model", shape.name},
         {"shape", to_json(shape)},
         {"tokens", tokens},
         {"ranks", size},
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
                    {"unused_tuning", unused}};
    if (text && all.leader())
      fmt::print("\nA communicator of these ranks ({}) takes {} of symmetric memory and {} for control on each rank\n",
                 all.first().fabric(), format_bytes(memory.window), format_bytes(memory.control));
    if (text && all.leader())
      fmt::print("Its all-reduces are tuned by: {}\n{}NVLink multicast: {}\n", all.first().tuning(),
                 unused.empty() ? "" : unused + "\n", all.first().multicast());
  } catch (const Error& error) {
    if (error.code() == Errc::invalid_argument) throw;
    communicator = {{"error", error.what()}};
    code = 1;
    fmt::print(stderr, "No communicator: {}\n", error.what());
  }
  write(gpu_csv(machine), machine, "communicator", communicator);
  return code;
}

}  // namespace

Command add_info(CLI::App& app, const std::vector<std::string>& arguments) {
  const auto info = std::make_shared<Info>();
  info->arguments = arguments;
  app.add_option("--ranks", info->ranks, "Ranks whose memory is shown (default: as in bench; with --moe 8)")
      ->check(whole_number(1, 72));
  add_choice(app, "--device", info->device, {Device::automatic, Device::cpu, Device::cuda}, "Device of the ranks");
  info->moe.add_to(app, "--moe", "Show the memory of this model's dispatch and combine instead");
  auto* count = app.add_option("--tokens", info->tokens, "Tokens per rank, for --moe and --config")
                    ->check(whole_number(1, 1024))
                    ->capture_default_str();
  info->moe.excludes(app.add_flag("--multicast", info->multicast, "Ask for NVLink multicast (Config::multicast)"));
  info->moe.excludes(
      app.add_option("--tuning", info->tuning, "Tables of weft tune to use instead of the built-in ones"));
  app.add_option("--json", info->json, "Write everything to this file (-: stdout)");
  app.add_option("--csv", info->csv, "Write the table of GPUs, or of --moe, to this file (-: stdout)");
  return [info, count] {
    if (count->count() != 0 && !info->moe.given())
      throw Error(Errc::invalid_argument, "--tokens: needs --moe or --config");
    return info->run();
  };
}

}  // namespace weft::cli
