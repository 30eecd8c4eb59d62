// A launcher's (torchrun, mpirun, srun) information about this process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace weft::detail {

struct LaunchEnvironment {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  std::string host = "127.0.0.1";  // rank 0 listens here
  std::uint16_t port = 0;          // 0 only in a world of one
  std::string port_origin = {};    // for people: "MASTER_PORT + 1000"
  bool other_hosts = false;        // the launcher says that the ranks are on several hosts
  std::uint64_t job = 0;           // equal for all ranks of a job, and public
  std::string launcher = "none";
};

using Lookup = std::function<std::optional<std::string>(const std::string&)>;

// Throws Errc::rendezvous with variable, value and range if the environment is half set or makes no sense.
LaunchEnvironment read_launch_environment(const Lookup& lookup);

// The variables of this process.
std::optional<std::string> environment_variable(const std::string& name);

}  // namespace weft::detail
