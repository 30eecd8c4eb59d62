// An engine's own NCCL communicators, one for each GPU of this process.
#pragma once

#include <stdexcept>
#include <vector>

#include "fabric/nccl_table.hpp"

namespace weft::test {

inline std::vector<ncclComm_t> engine_communicators(int ranks) {
  const decltype(&ncclCommInitAll) init_all = detail::nccl().library.need("ncclCommInitAll");
  std::vector<ncclComm_t> engine(static_cast<std::size_t>(ranks));
  if (init_all(engine.data(), ranks, nullptr) != ncclSuccess) throw std::runtime_error("ncclCommInitAll");
  return engine;
}

inline void destroy(const std::vector<ncclComm_t>& engine) {
  for (ncclComm_t comm : engine) {
    if (detail::nccl().comm_destroy(comm) != ncclSuccess) throw std::runtime_error("ncclCommDestroy");
  }
}

}  // namespace weft::test
