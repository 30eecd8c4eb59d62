// Runs the program as a shell does, and keeps its output.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/program.hpp"

namespace weft::cli {

struct Output {
  int code;
  std::string out;
  std::string err;
};

inline Output run(const std::vector<std::string>& arguments) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const int code = run_program(arguments);
  std::fflush(stdout);
  return {code, testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
}

// Every benchmark with its smallest work.
inline std::vector<std::vector<std::string>> small_benches() {
  return {{"bench", "--model", "qwen3-30b", "--tokens", "2"},
          {"bench", "all-reduce", "--bytes", "3K,12K"},
          {"bench", "gather", "--hidden", "64", "--tokens", "1", "--what", "all_gather,reduce_scatter_v"},
          {"bench", "norm", "--hidden", "64", "--tokens", "1"},
          {"bench", "moe", "--model", "qwen3-30b", "--tokens", "1"}};
}

inline nlohmann::json read_json(const std::string& file) {
  std::ifstream in(file);
  return nlohmann::json::parse(in);
}

}  // namespace weft::cli
