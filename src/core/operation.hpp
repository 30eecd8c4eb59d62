// What one call does, in the values that choose its instance and in those that its kernel gets.
#pragma once

#include <variant>

#include "algorithms/all_reduce.hpp"
#include "core/exchange.hpp"
#include "core/plan.hpp"
#include "weft/types.hpp"

namespace weft::detail {

struct AllReduceOperation {
  AllReduceWork work;
  InstanceQuery instance;
  Algorithm algorithm;
};

struct DispatchOperation {
  DispatchWork work;
  RowType type;
};

struct CombineOperation {
  CombineWork work;
  DataType type;
};

// Executors, recordings and fabrics pass it on unread; core/dispatch.hpp finds the instance that serves it.
using Operation = std::variant<AllReduceOperation, DispatchOperation, CombineOperation>;

}  // namespace weft::detail
