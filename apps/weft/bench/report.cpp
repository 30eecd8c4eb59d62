#include "bench/report.hpp"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/build_info.hpp"
#include "common/streams.hpp"
#include "rendezvous/environment.hpp"
#include "workloads/speed_up.hpp"

namespace weft::cli {
namespace {

using nlohmann::json;

}  // namespace

std::string now() {
  const auto seconds = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)));
}

json to_json(const ModelShape& shape) {
  return {{"name", shape.name},
          {"hidden", shape.hidden},
          {"layers", shape.layers},
          {"vocabulary", shape.vocabulary},
          {"moe_layers", shape.moe_layers},
          {"all_reduces", shape.all_reduces},
          {"gathers", shape.gathers},
          {"dense_parts", shape.dense_parts},
          {"shared_experts", shape.shared_experts},
          {"shared_intermediate", shape.shared_intermediate},
          {"num_experts", shape.num_experts},
          {"top_k", shape.top_k},
          {"n_group", shape.n_group},
          {"topk_group", shape.topk_group},
          {"row_width", shape.row_width()},
          {"intermediate", shape.intermediate},
          {"zero_experts", shape.zero_experts},
          {"warnings", shape.warnings}};
}

json to_json(const Machine& machine) {
  json gpus = json::array();
  for (const auto& gpu : machine.gpus)
    gpus.push_back({{"name", gpu.name},
                    {"memory", gpu.memory},
                    {"multiprocessors", gpu.multiprocessors},
                    {"architecture", gpu.architecture},
                    {"reach", gpu.reach},
                    {"nvlinks",
                     {{"present", gpu.links.present},
                      {"up", gpu.links.up},
                      {"gb_per_s", gpu.links.gb_per_s},
                      {"to", gpu.links.to}}}});
  return {{"cpu", machine.cpu},
          {"cores", machine.cores},
          {"gpus", gpus},
          {"gpus_present", machine.gpus_present},
          {"driver", machine.driver},
          {"cuda_runtime", machine.cuda_runtime},
          {"nccl_compiled", machine.nccl_compiled},
          {"nccl_runtime", machine.nccl_runtime},
          {"cuda_problem", machine.cuda_problem}};
}

json to_json(const Result& result) {
  const Point& point = result.point;
  const Figure figure = figure_of(result);
  json out = {{"bytes", point.bytes()},
              {"count", point.count},
              {"rows", point.rows},
              {"hidden", point.hidden},
              {"type", name(point.type)},
              {"op", name(point.op)},
              {"contender", name(point.contender)},
              {"method", name(point.method)},
              {"blocks", point.launch.blocks},
              {"threads", point.launch.threads},
              {"verdict", name(result.verdict)},
              {"us", result.us},
              {"us_min", figure.least},
              {"us_max", figure.most},
              {"gb_per_s", result.gb_per_s()},
              {"samples_us", result.samples_us}};
  out["operation"] = name(point.operation);
  if (point.operation != Operation::all_reduce) out["load"] = name(point.load);
  if (is_crossing(point.operation)) out["padding"] = name(point.padding);
  if (!result.chosen.empty()) out["algorithm"] = result.chosen;
  if (!result.detail.empty()) out["detail"] = result.detail;
  if (!result.baseline_us.empty()) out["baseline_us"] = result.baseline_us;
  return out;
}

json build_json() {
  const auto& build = detail::build_info();
  return {{"version", build.version},   {"commit", build.commit},         {"dirty", build.dirty},
          {"compiler", build.compiler}, {"build_type", build.build_type}, {"cuda", build.cuda},
          {"nccl", build.nccl}};
}

json to_json(const std::vector<Result>& results) {
  json points = json::array();
  for (const auto& result : results) points.push_back(to_json(result));
  return points;
}

json to_json(const std::vector<Result>& results, const Crowd& crowd) {
  json points = to_json(results);
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!is_weft(results[i].point.contender)) continue;
    const SpeedUp ratio = speed_up(results[i], best_peer(results, results[i].point), crowd);
    json& point = points[i];
    point["speed_up"] = ratio.ratio ? json(*ratio.ratio) : json();
    if (!ratio.ratio) point["why_no_speed_up"] = ratio.why_none;
    if (results[i].point.contender != Contender::symmetric) continue;
    const SpeedUp symmetric = symmetric_speed_up(results, results[i].point, crowd);
    if (symmetric.ratio) point["symmetric_speed_up"] = *symmetric.ratio;
  }
  return points;
}

json report(const RunInfo& run, const Machine& machine, json points) {
  return {{"schema", "weft-bench-1"},
          {"command", run.command},
          {"arguments", run.arguments},
          {"date", now()},
          {"build", build_json()},
          {"machine", to_json(machine)},
          {"device", run.device},
          {"world_size", run.world_size},
          {"fabric", run.fabric},
          {"threads", run.crowd.threads()},
          {"usable_cores", run.crowd.cores},
          {"crowded", run.crowd.crowded()},
          {"data", run.data},
          {"config", run.config},
          {"notes", run.notes},
          {"points", std::move(points)}};
}

TorchRun read_torch_run(const std::filesystem::path& file, int world_size, const std::string& gpu) {
  const auto bad = [&](const std::string& why) {
    return Error(Errc::invalid_argument, fmt::format("--torch-json {}: {}", file.string(), why));
  };
  std::ifstream in(file);
  if (!in) throw bad("cannot be read");
  const json whole = json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (whole.is_discarded()) throw bad("is not a file of bench/torch_peer.py: it is no JSON");
  TorchRun run;
  try {
    if (!whole.is_object() || whole.value("schema", json()) != "weft-torch-1")
      throw bad("is not a file of bench/torch_peer.py");
    if (whole.at("world_size") != world_size)
      throw bad(
          fmt::format("was measured on {} ranks, this run has {}", whole.at("world_size").get<int>(), world_size));
    const auto theirs = whole.at("gpu").get<std::string>();
    if (theirs != gpu)
      throw bad(fmt::format("was measured on {}, this run is on {}", theirs, gpu.empty() ? "CPU ranks" : gpu));
    run.about = fmt::format("torch {} with CUDA {} and NCCL {}, measured by bench/torch_peer.py on {}",
                            whole.at("torch").get<std::string>(), whole.at("cuda").get<std::string>(),
                            whole.at("nccl").get<std::string>(), whole.at("date").get<std::string>());
    for (const auto& entry : whole.at("points")) {
      for (const auto contender : {Contender::torch_nccl, Contender::torch_one_shot, Contender::torch_two_shot}) {
        if (entry.at("contender") != name(contender)) continue;
        Result result{.point = {.count = entry.at("bytes").get<std::size_t>() / size_of(DataType::bf16)}};
        result.point.contender = contender;
        result.point.method = Method::graph;
        result.verdict = entry.at("correct").get<bool>() ? Verdict::ok : Verdict::wrong;
        result.us = entry.at("us").get<double>();
        result.samples_us = entry.at("samples_us").get<std::vector<std::vector<double>>>();
        run.results.push_back(std::move(result));
      }
    }
  } catch (const json::exception& error) {
    throw bad(fmt::format("is not a file of bench/torch_peer.py, or a damaged one ({})", error.what()));
  }
  return run;
}

namespace {

// Throws if two options name the same file, or names that would become one file: the second would replace the first.
void check_different(const std::vector<Destination>& outputs) {
  for (std::size_t b = 0; b < outputs.size(); ++b) {
    for (std::size_t a = 0; a < b; ++a) {
      const std::filesystem::path one = outputs[a].where, other = outputs[b].where;
      if (one.empty() || one == "-" || other.empty() || other == "-") continue;
      if (std::filesystem::exists(one) && !std::filesystem::is_regular_file(one)) continue;  // a device, say
      if (std::filesystem::weakly_canonical(one) != std::filesystem::weakly_canonical(other)) continue;
      throw Error(Errc::invalid_argument, fmt::format("{} {} and {} {}: must be different files", outputs[a].option,
                                                      outputs[a].where, outputs[b].option, outputs[b].where));
    }
  }
}

}  // namespace

void check_outputs(const std::vector<Destination>& outputs) {
  check_different(outputs);
  std::string_view on_stdout;
  for (const auto& [option, where] : outputs) {
    if (where != "-") continue;
    if (!on_stdout.empty())
      throw Error(
          Errc::invalid_argument,
          fmt::format("{} - and {} -: only one of them may be stdout, the other must be a file", on_stdout, option));
    on_stdout = option;
  }
  if (detail::read_launch_environment(detail::environment_variable).rank != 0) return;
  for (const auto& [option, where] : outputs) {
    if (where.empty() || where == "-") continue;
    const auto kind = std::filesystem::status(where).type();
    const bool absent = kind == std::filesystem::file_type::not_found;
    if (!absent && kind != std::filesystem::file_type::regular && kind != std::filesystem::file_type::directory)
      continue;  // the reader of a pipe would see its end
    errno = 0;
    std::ofstream out(where, std::ios::app);
    if (!out)
      throw Error(Errc::invalid_argument,
                  fmt::format("{} {}: cannot be written: {}", option, where, std::strerror(errno)));
    out.close();
    if (absent) std::filesystem::remove(where);
  }
}

void write_text(const std::string& where, const std::string& text) {
  if (where == "-") return write_stdout(text);
  errno = 0;
  std::ofstream out(where, std::ios::trunc);
  out << text;
  out.close();
  if (!out) throw Error(Errc::system, fmt::format("{}: cannot be written: {}", where, std::strerror(errno)));
}

}  // namespace weft::cli
