// Finds seeded bugs by name.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>
#include <vector>

#include "mutant.hpp"
#include "mutant_table.hpp"
#include "telling.hpp"

namespace weft::sim {

inline int mutant_number(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(detail::kMutants)); ++i) {
    if (detail::kMutants[i].name == name) return i + 1;
  }
  throw std::out_of_range("no such mutant");
}

// A bug is shown by many executions, by few of them, or by virtual time alone.
enum class Shown { by_many, by_few, in_time };
inline std::vector<int> mutants(Shown shown) {
  std::vector<int> numbers;
  for (int i = 0; i < static_cast<int>(std::size(detail::kMutants)); ++i) {
    const detail::MutantInfo& mutant = detail::kMutants[i];
    const Shown own = mutant.where == "virtual time" ? Shown::in_time
                      : mutant.scheduler.empty()     ? Shown::by_many
                                                     : Shown::by_few;
    if (own == shown) numbers.push_back(i + 1);
  }
  return numbers;
}

inline std::string mutant_test_name(const testing::TestParamInfo<int>& info) {
  return identifier(std::string(detail::kMutants[info.param - 1].name));
}

class WithMutant : public testing::Test {
 protected:
  void TearDown() override { detail::active_mutant = 0; }
};

}  // namespace weft::sim
