// NCCL's host calls with Weft's errors and with deadlines. Weft's communicators are non-blocking, so that no call of
// NCCL can hang: the wait for work in progress is here.
#pragma once

#include <fmt/format.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "fabric/nccl_table.hpp"
#include "rendezvous/deadline.hpp"
#include "weft/error.hpp"

namespace weft::detail {

inline void check_nccl(ncclResult_t result, std::string_view what, ncclComm_t comm = nullptr) {
  if (result == ncclSuccess) return;
  const char* last = nccl().get_last_error(comm);
  throw Error(Errc::system, fmt::format("{}: {}{}{}", what, nccl().get_error_string(result),
                                        last != nullptr && *last != 0 ? ": " : "", last != nullptr ? last : ""));
}

// Waits until a call is done. Some of NCCL's calls return ncclSuccess while their work goes on (ncclCommWindowRegister
// in 2.28 does), so the communicator is always asked.
inline void settle_nccl(ncclResult_t result, ncclComm_t comm, std::string_view what, std::chrono::nanoseconds limit) {
  if (result != ncclInProgress) check_nccl(result, what, comm);
  const Deadline deadline(limit);
  for (;;) {
    check_nccl(nccl().comm_get_async_error(comm, &result), what, comm);
    if (result != ncclInProgress) return check_nccl(result, what, comm);
    if (deadline.passed()) {
      throw Error(Errc::rendezvous, fmt::format("{}: NCCL was not done {}", what, deadline.text()));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace weft::detail
