// Seeded bugs by name.
#pragma once

#include <gtest/gtest.h>

#include <stdexcept>
#include <string_view>

#include "mutant.hpp"
#include "mutant_table.hpp"

namespace weft::sim {

inline int mutant_number(std::string_view name) {
  for (int i = 0; i < static_cast<int>(std::size(detail::kMutants)); ++i) {
    if (detail::kMutants[i].name == name) return i + 1;
  }
  throw std::out_of_range("no such mutant");
}

class WithMutant : public testing::Test {
 protected:
  void TearDown() override { detail::active_mutant = 0; }
};

}  // namespace weft::sim
