// Lets operations' folders find their production templates, instantiated for the simulator's team.
#pragma once

#include <fmt/format.h>

#include <stdexcept>

#include "sim/run.hpp"
#include "weft/error.hpp"

namespace weft::sim {

// A query, and its kernel's work.
template <class Query>
struct Wanted {
  Query query;
  typename Query::Work work;
};

// The way in which ranks run the kernel. `lanes`: of a warp; more than one only has instances for bf16, units of 16
// bytes, and norms of two ranks.
struct RunAs {
  int atomic_bytes;
  bool one_thread;
  unsigned lanes = 1;
};

Kernel find_rejection_kernel(const RunAs& as);  // comm/sim_rejection.cpp

// Calls `find` for the unit; throws if there is no kernel.
template <class Find>
Kernel in_units(int atomic_bytes, Find find) {
  Kernel kernel;
  if (atomic_bytes == 8) kernel = find.template operator()<8>();
  if (atomic_bytes == 16) kernel = find.template operator()<16>();
  if (kernel) return kernel;
  throw Error(Errc::invalid_argument,
              fmt::format("simulator: no set-up runs this operation for so many ranks, with this type, in units of {} "
                          "bytes",
                          atomic_bytes));
}

// The same for operations whose warps have 1, 2 or 8 lanes. `what` they are: for the text of an error.
template <class Find>
Kernel in_units_and_lanes(const RunAs& as, const char* what, Find find) {
  switch (as.lanes) {
    case 1:
      return in_units(as.atomic_bytes, [&]<int unit>() { return find.template operator()<unit, 1>(); });
    case 2:
      return find.template operator()<16, 2>();
    case 8:
      return find.template operator()<16, 8>();
    default:
      throw std::invalid_argument(fmt::format("simulator: no {} with so many lanes", what));
  }
}

}  // namespace weft::sim
