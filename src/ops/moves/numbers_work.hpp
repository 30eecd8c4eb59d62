// Arguments of the kernel that takes counts from the host to the device, and how it is found.
#pragma once

#include "kernel/kernel.hpp"

namespace weft::detail {

struct NumbersWork {
  HostNumbers from;
  HostNumbers* to;
};

struct NumbersQuery {
  using Work = NumbersWork;
  constexpr bool operator==(const NumbersQuery&) const = default;
  constexpr NumbersQuery key() const { return *this; }
};
KernelFor<NumbersWork> find_kernel(const NumbersQuery& query);

}  // namespace weft::detail
