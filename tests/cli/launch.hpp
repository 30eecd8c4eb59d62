// Runs the program as a launcher does: one process for each rank.
#pragma once

#include <chrono>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "cli/run.hpp"
#include "support/spawned.hpp"

namespace weft::cli {

inline constexpr char kLaunchedArguments[] = "WEFT_TEST_ARGUMENTS";
inline constexpr std::string_view kLaunchedMark = "\nsaid ";

// Runs in the process of a rank: the test LaunchedProgram.DISABLED_Worker.
inline void run_as_launched() {
  const char* const arguments = std::getenv(kLaunchedArguments);
  ASSERT_NE(arguments, nullptr);
  const Output result = run(nlohmann::json::parse(arguments).get<std::vector<std::string>>());
  const nlohmann::json said{{"code", result.code}, {"out", result.out}, {"err", result.err}};
  std::cout << kLaunchedMark << said.dump() << std::endl;
}

// Returns each process's output and exit code.
inline std::vector<nlohmann::json> launch(int ranks, const std::vector<std::string>& arguments) {
  std::vector<nlohmann::json> said;
  const test::Variables variables{{kLaunchedArguments, nlohmann::json(arguments).dump()}};
  for (test::Spawned& rank : test::start_ranks("LaunchedProgram.DISABLED_Worker", ranks, variables)) {
    // Ends a hang alone. Three sanitized ranks beside other tests have taken a minute on two cores.
    const test::Outcome outcome = rank.wait(std::chrono::seconds(240));
    EXPECT_EQ(outcome.exit_code, 0) << "signal " << outcome.signal << ", too slow " << outcome.too_slow;
    const std::size_t begin = outcome.said.find(kLaunchedMark);
    nlohmann::json json;
    if (begin != std::string::npos) {
      const std::string rest = outcome.said.substr(begin + kLaunchedMark.size());
      json = nlohmann::json::parse(rest.substr(0, rest.find('\n')), nullptr, false);
    }
    said.push_back(json.is_object() ? json : nlohmann::json{{"code", -1}, {"out", outcome.said}, {"err", ""}});
  }
  return said;
}

}  // namespace weft::cli
