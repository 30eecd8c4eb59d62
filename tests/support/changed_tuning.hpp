// Files of tuning tables with one wrong place.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "support/ranks.hpp"
#include "tuning/tuning.hpp"

namespace weft::test {

// The error of reading the file "my.json" whose text is `good`, with `from` replaced by `to`.
inline std::string error_of_changed_tuning(std::string good, const std::string& from, const std::string& to) {
  const auto at = good.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  good.replace(at, from.size(), to);
  return error_of([&] { detail::parse_tuning(good, "my.json"); });
}

}  // namespace weft::test
