// Input: lines of NAME=value.
#include "rendezvous/environment.hpp"

#include <map>
#include <string>

#include "fuzz/targets.hpp"
#include "weft/error.hpp"

namespace weft::fuzz {

void environment(Bytes data) {
  std::map<std::string, std::string> variables;
  for (std::string_view rest = text_of(data); !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const std::size_t equals = line.find('=');
    if (equals != std::string_view::npos) variables[std::string(line.substr(0, equals))] = line.substr(equals + 1);
  }
  const auto lookup = [&](const std::string& name) -> std::optional<std::string> {
    const auto entry = variables.find(name);
    return entry == variables.end() ? std::nullopt : std::optional(entry->second);
  };
  try {
    const detail::LaunchEnvironment launch = detail::read_launch_environment(lookup);
    require(launch.world_size >= 1 && launch.world_size <= 72, "there are 1 to 72 ranks");
    require(launch.rank >= 0 && launch.rank < launch.world_size, "the rank is one of them");
    require(launch.local_rank >= 0 && launch.local_rank < launch.world_size, "so is the local one");
    require(!launch.host.empty(), "there is a host");
    require(launch.world_size == 1 || launch.port != 0, "there is a port");
  } catch (const Error& error) {
    require(error.code() == Errc::rendezvous, "a wrong variable is an error of the rendezvous");
  }
}

}  // namespace weft::fuzz
