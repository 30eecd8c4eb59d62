// Replaces `weft simulate` under sanitizers, which do not follow the simulator's fibers from stack to stack.
#include "common/commands.hpp"
#include "weft/error.hpp"

namespace weft::cli {

Command add_simulate(CLI::App& app, const std::vector<std::string>&) {
  app.allow_extras();
  return []() -> int { throw Error(Errc::unsupported, "weft simulate: not in a build with sanitizers"); };
}

}  // namespace weft::cli
