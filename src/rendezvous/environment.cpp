#include "rendezvous/environment.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cstdlib>
#include <limits>

#include "base/limits.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

// torchrun's own store takes MASTER_PORT itself.
constexpr int torchrun_port_offset = 1000;
// Ports derived from a job's id: under the range that Linux gives to outgoing connections.
constexpr int first_job_port = 20000, job_ports = 10000;
constexpr int most_ranks = static_cast<int>(kMaxRanks);

[[noreturn]] void bad(const std::string& message) {
  throw Error(Errc::rendezvous, message);
}

// FNV-1a: the same in every build on every host, unlike std::hash.
std::uint64_t hash(std::string_view text) {
  std::uint64_t value = 0xcbf29ce484222325;
  for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return value;
}

class Variables {
 public:
  explicit Variables(const Lookup& lookup) : lookup_(lookup) {}

  bool has(const std::string& name) const { return lookup_(name).has_value(); }
  std::string get(const std::string& name, const std::string& fallback) const {
    return lookup_(name).value_or(fallback);
  }
  std::string require(const std::string& name, const std::string& launcher) const {
    const std::optional<std::string> value = lookup_(name);
    if (!value || value->empty()) bad(fmt::format("{} is not set, but other variables of {} are", name, launcher));
    return *value;
  }
  int number(const std::string& name, const std::string& launcher, int least, int most) const {
    return parse(name, require(name, launcher), least, most);
  }

  static int parse(const std::string& name, const std::string& text, int least, int most) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most) {
      bad(fmt::format("{} is '{}', allowed is {} … {}", name, text, least, most));
    }
    return value;
  }

 private:
  const Lookup& lookup_;
};

// "gpu[07-09,12],login1" → "gpu07", "rack[1-2]node[3-4]" → "rack1node3".
std::string first_host(const std::string& variable, const std::string& list) {
  std::string host;
  for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
    if (list[at] != '[') {
      host += list[at];
      continue;
    }
    const std::size_t close = list.find(']', at);
    const std::string first = list.substr(at + 1, list.find_first_of("-,]", at) - at - 1);
    if (close == std::string::npos || first.empty()) {
      bad(fmt::format("{} is '{}', allowed is a list like gpu[07-09,12],login1", variable, list));
    }
    host += first;
    at = close;
  }
  if (host.empty()) bad(fmt::format("{} is '{}', and names no first host", variable, list));
  return host;
}

// host:port or [address]:port
void use_rendezvous(LaunchEnvironment& environment, const std::string& text) {
  const std::size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string::npos) {
    host.clear();  // an IPv6 address without brackets has no clear end
  }
  if (colon == std::string::npos || host.empty()) {
    bad(fmt::format("WEFT_RENDEZVOUS is '{}', allowed is host:port or [address]:port", text));
  }
  environment.host = host;
  environment.port =
      static_cast<std::uint16_t>(Variables::parse("the port in WEFT_RENDEZVOUS", text.substr(colon + 1), 1, 65535));
  environment.port_origin = "of WEFT_RENDEZVOUS";
}

struct VariableNames {
  std::string launcher, rank, world_size, local_rank;
};

// Rank, world size and, if the launcher gives it, local rank.
LaunchEnvironment read_ranks(const Variables& variables, const VariableNames& names) {
  LaunchEnvironment environment;
  environment.launcher = names.launcher;
  environment.world_size = variables.number(names.world_size, names.launcher, 1, most_ranks);
  environment.rank = variables.number(names.rank, names.launcher, 0, environment.world_size - 1);
  if (variables.has(names.local_rank)) {
    environment.local_rank = variables.number(names.local_rank, names.launcher, 0, environment.world_size - 1);
  }
  return environment;
}

void use_job(LaunchEnvironment& environment, const std::string& job) {
  environment.job = hash(environment.launcher + "/" + job);
  environment.port = static_cast<std::uint16_t>(first_job_port + environment.job % job_ports);
  environment.port_origin = "which follows from the job; WEFT_RENDEZVOUS=host:port names another";
}

// The loopback address serves all ranks of one host. On several hosts, MPI's variables do not give rank 0's host.
void look_for_hosts(LaunchEnvironment& environment, const Variables& variables, const std::string& local_size) {
  if (!variables.has(local_size)) return;
  const int local = variables.number(local_size, environment.launcher, 1, most_ranks);
  environment.other_hosts = local < environment.world_size;
  if (environment.other_hosts && !variables.has("WEFT_RENDEZVOUS")) {
    bad(
        fmt::format("{} is {} of {} ranks: on several hosts {} does not tell where rank 0 runs; set "
                    "WEFT_RENDEZVOUS=host:port to a free port of its host",
                    local_size, local, environment.world_size, environment.launcher));
  }
}

LaunchEnvironment read_torchrun(const Variables& variables) {
  LaunchEnvironment environment = read_ranks(variables, {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"});
  // A restarted attempt is a different job to stragglers of the attempt before.
  use_job(environment, variables.get("TORCHELASTIC_RUN_ID", "") + "/" +
                           variables.get("TORCHELASTIC_RESTART_COUNT", "") + "/" + variables.get("MASTER_PORT", ""));
  if (environment.world_size == 1) return environment;
  const bool counted = variables.has("LOCAL_WORLD_SIZE");
  const int local = counted ? variables.number("LOCAL_WORLD_SIZE", "torchrun", 1, most_ranks) : 0;
  environment.other_hosts = counted && local < environment.world_size;
  if (variables.has("WEFT_RENDEZVOUS")) return environment;
  // If all ranks are here, other hosts need not reach the name.
  const std::string host = variables.require("MASTER_ADDR", "torchrun");
  if (local != environment.world_size) environment.host = host;
  const int port = variables.number("MASTER_PORT", "torchrun", 1, 65535);
  const bool fits = port + torchrun_port_offset <= std::numeric_limits<std::uint16_t>::max();
  environment.port = static_cast<std::uint16_t>(fits ? port + torchrun_port_offset : port - torchrun_port_offset);
  environment.port_origin = fmt::format("MASTER_PORT {} {}", fits ? '+' : '-', torchrun_port_offset);
  return environment;
}

LaunchEnvironment read_openmpi(const Variables& variables) {
  LaunchEnvironment environment =
      read_ranks(variables, {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"});
  look_for_hosts(environment, variables, "OMPI_COMM_WORLD_LOCAL_SIZE");
  use_job(environment, variables.get("PMIX_NAMESPACE", "") + "/" + variables.get("OMPI_MCA_ess_base_jobid", ""));
  return environment;
}

LaunchEnvironment read_pmi(const Variables& variables) {
  LaunchEnvironment environment = read_ranks(variables, {"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"});
  look_for_hosts(environment, variables, "MPI_LOCALNRANKS");
  use_job(environment, variables.get("PMI_JOBID", "") + "/" + variables.get("PMI_PORT", ""));
  return environment;
}

LaunchEnvironment read_srun(const Variables& variables) {
  const std::string size = variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
  LaunchEnvironment environment = read_ranks(variables, {"srun", "SLURM_PROCID", size, "SLURM_LOCALID"});
  use_job(environment, variables.require("SLURM_JOB_ID", "srun") + "/" + variables.require("SLURM_STEP_ID", "srun"));
  const std::string nodes = variables.get("SLURM_STEP_NUM_NODES", "");
  environment.other_hosts = !nodes.empty() && nodes != "1";
  if (!variables.has("WEFT_RENDEZVOUS") && nodes != "1") {
    const std::string list = variables.has("SLURM_STEP_NODELIST") ? "SLURM_STEP_NODELIST" : "SLURM_NODELIST";
    environment.host = first_host(list, variables.require(list, "srun"));
  }
  return environment;
}

LaunchEnvironment read_launcher(const Variables& variables) {
  if (variables.has("RANK") || variables.has("WORLD_SIZE")) return read_torchrun(variables);
  if (variables.has("OMPI_COMM_WORLD_RANK") || variables.has("OMPI_COMM_WORLD_SIZE")) return read_openmpi(variables);
  // srun sets PMI's variables as well (--mpi=pmi2), and an mpiexec inside of a Slurm job inherits Slurm's. Batch
  // scripts have SLURM_PROCID, too, but are no step: programs that they start without srun are a world of one.
  const bool pmi = variables.has("PMI_RANK") || variables.has("PMI_SIZE");
  const bool step = variables.has("SLURM_STEP_ID") && variables.has("SLURM_PROCID");
  const bool same = variables.get("SLURM_STEP_NUM_TASKS", "") == variables.get("PMI_SIZE", "");
  if (step && (!pmi || same)) return read_srun(variables);
  if (pmi) return read_pmi(variables);
  return {};
}

}  // namespace

LaunchEnvironment read_launch_environment(const Lookup& lookup) {
  const Variables variables(lookup);
  LaunchEnvironment environment = read_launcher(variables);
  if (const std::optional<std::string> place = lookup("WEFT_RENDEZVOUS")) use_rendezvous(environment, *place);
  return environment;
}

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

}  // namespace weft::detail
