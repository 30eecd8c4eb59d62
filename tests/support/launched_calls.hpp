// A call of every operation that takes a Launch, on CPU ranks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/weft.hpp"

namespace weft::test {

struct LaunchedCall {
  std::string name;
  std::function<void(const Group& group, const MoeExchange& exchange, const Launch& launch)> call;
};
std::vector<LaunchedCall> calls_with_a_launch();

// The exchange that these calls are given.
MoeExchangeArgs exchange_of_launched_calls();

}  // namespace weft::test
