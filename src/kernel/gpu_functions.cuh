// A family's CUDA functions, in the order of its list: one translation unit of nvcc's for each family.
#pragma once

#include <span>

#include "kernel/collective.cuh"
#include "kernel/instances.hpp"

namespace weft::detail {

using GpuFunctions = std::span<const void* const>;

template <class A>
const void* function_of() {
  if constexpr (kIsOneRanks<A>) {
    return reinterpret_cast<const void*>(&one_rank<A>);
  } else {
    return reinterpret_cast<const void*>(&collective<A>);
  }
}
template <class... Rows>
GpuFunctions functions_of(Instances<Rows...>) {
  static const void* const functions[] = {function_of<typename Rows::A>()...};
  return functions;
}
template <class Family>
GpuFunctions gpu_functions() {
  return functions_of(typename Family::List{});
}

}  // namespace weft::detail
