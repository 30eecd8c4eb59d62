// `weft tune` for tables with steps by tokens: its files and arguments, and a state of trials with made-up times.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/run.hpp"

namespace weft::cli {

class TuneTokensProgram : public testing::Test {
 protected:
  struct Args {
    std::string operation;                  // of --operation
    std::string kept;                       // in a state
    std::string tokens;                     // of --tokens
    std::vector<std::uint32_t> counts;      // the same
    int samples;                            // of a trial before the turns
    std::vector<std::string> paths = {""};  // of the searches; empty: of a search of no path
  };
  explicit TuneTokensProgram(Args args) : args_(std::move(args)) {}
  void SetUp() override {
    for (const std::string& file : {table_, state_}) std::filesystem::remove(file);
    std::ofstream(config_) << R"({"hidden_size": 128, "num_hidden_layers": 3, "num_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 128})";
  }
  std::vector<std::string> tune(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"tune",          "--device", "cpu",   "--ranks",  "2",          "--operation",
                                 args_.operation, "--config", config_, "--tokens", args_.tokens, "--output",
                                 table_,          "--state",  state_,  "--quick",  "--samples",  "1"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  // The time of a trial; an empty way is the present choice.
  using Time = std::function<double(const std::string& way, std::uint32_t tokens, const std::string& path)>;
  // A state in which every trial has such a time.
  void begin(const std::vector<std::string>& ways, const Time& us) const {
    std::vector<std::string> arguments = tune();
    *(std::ranges::find(arguments, table_)) = "/nonexistent/table.json";
    ASSERT_EQ(run(arguments).code, 1);
    std::string identity;
    std::getline(std::ifstream(state_), identity);
    std::ofstream out(state_);
    out << identity << "\n";
    for (const std::uint32_t tokens : args_.counts) {
      for (int turn = 0; turn <= 7; ++turn) {
        for (const std::string& way : ways) {
          for (const std::string& path : args_.paths) {
            nlohmann::json line = {{"operation", args_.kept},
                                   {"bytes", tokens},
                                   {"algorithm", "automatic"},
                                   {"blocks", 0},
                                   {"threads", 0},
                                   {"samples", turn == 0 ? args_.samples : 1},
                                   {"turn", turn},
                                   {"us", us(way, tokens, path)}};
            if (!way.empty()) line["way"] = way;
            if (!path.empty()) line["path"] = path;
            out << line.dump() << "\n";
          }
        }
      }
    }
  }

  Args args_;
  std::string stem_ =
      testing::TempDir() + testing::UnitTest::GetInstance()->current_test_info()->name() + "." + args_.operation;
  std::string table_ = stem_ + ".json", state_ = stem_ + ".state", config_ = stem_ + ".config.json";
};

}  // namespace weft::cli
