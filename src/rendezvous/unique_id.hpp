// The meeting behind a UniqueId (weft/communicator.hpp).
#pragma once

#include <chrono>
#include <memory>

#include "rendezvous/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft::detail {

// Blocks until all ranks are there. Rank 0 must be in the process that made the id, and can use it once.
std::unique_ptr<Bootstrap> make_id_bootstrap(const UniqueId& id, int rank, int world_size,
                                             std::chrono::nanoseconds deadline);

}  // namespace weft::detail
