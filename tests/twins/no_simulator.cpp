// Replaces `weft simulate` in builds without it (WEFT_SIMULATE). Sanitizers do not follow its fibers from stack to
// stack.
#include "common/commands.hpp"
#include "weft/error.hpp"

namespace weft::cli {

Command add_simulate(CLI::App& app, const std::vector<std::string>&) {
  app.allow_extras();
  return []() -> int {
    throw Error(Errc::unsupported, "weft simulate: this build of the program has no simulator (WEFT_SIMULATE)");
  };
}

}  // namespace weft::cli
