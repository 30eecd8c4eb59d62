// Results as JSON: everything that a reader needs to believe a number and to measure it again.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/machine.hpp"
#include "models/models.hpp"
#include "workloads/cores.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

struct RunInfo {
  std::string command;                 // "bench all-reduce"
  std::vector<std::string> arguments;  // as typed
  std::string device;
  int world_size = 0;
  std::string fabric;
  std::string data;
  Crowd crowd;
  nlohmann::json config = nlohmann::json::object();  // what the command sets of Config: names as there, seconds
  std::vector<std::string> notes;
};

// UTC, "2026-01-31T12:00:00Z".
std::string now();

nlohmann::json to_json(const ModelShape& shape);
nlohmann::json to_json(const Machine& machine);
nlohmann::json to_json(const Result& result);
nlohmann::json build_json();
nlohmann::json to_json(const std::vector<Result>& results);
// Weft's results have "speed_up". It is null, with the reason, if there is none. Those to symmetric memory also have
// "symmetric_speed_up", over NCCL on symmetric windows, if that was measured.
nlohmann::json to_json(const std::vector<Result>& results, const Crowd& crowd);
// `points`: one object for each thing measured.
nlohmann::json report(const RunInfo& run, const Machine& machine, nlohmann::json points);

// The points of a file that bench/torch_peer.py wrote. Throws Errc::invalid_argument for any other file.
struct TorchRun {
  std::vector<Result> results;
  std::string about;  // versions and time, in words
};
// `gpu`: the name of this run's GPUs; empty for CPU ranks. Throws if the file is of other GPUs or another number of
// them.
TorchRun read_torch_run(const std::filesystem::path& file, int world_size, const std::string& gpu);

// The destination of an output: nothing, a file, or stdout ("-").
struct Destination {
  std::string_view option;
  std::string where;
};
// Throws Errc::invalid_argument, before anything is measured, if an output cannot be written or two have the same
// destination. In a launched job only rank 0 writes.
void check_outputs(const std::vector<Destination>& outputs);

// Writes to a file, or to stdout for "-". Throws Errc::system.
void write_text(const std::string& where, const std::string& text);

}  // namespace weft::cli
