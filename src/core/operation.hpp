// What one call does, in the values that choose its instance and in those that its kernel gets.
#pragma once

#include <variant>

#include "algorithms/all_reduce.hpp"
#include "core/plan.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct AllReduceOperation {
  AllReduceWork work;
  InstanceQuery instance;
  Algorithm algorithm;
};

// Executors, recordings and fabrics pass it on unread; core/dispatch.hpp finds the instance that serves it.
using Operation = std::variant<AllReduceOperation>;

}  // namespace weft::detail
