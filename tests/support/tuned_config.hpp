// A configuration with a file of tuning tables.
#pragma once

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "tuning/tuning.hpp"
#include "weft/config.hpp"

namespace weft::test {

// `name`: of the file, which no other test may have.
inline Config with_tuning_file(Config config, const std::vector<detail::TuningTable>& tables, const std::string& name) {
  config.tuning_file = testing::TempDir() + name + ".json";
  std::ofstream(config.tuning_file) << detail::to_json(tables);
  return config;
}

}  // namespace weft::test
