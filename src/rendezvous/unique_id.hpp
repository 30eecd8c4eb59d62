// The meeting behind a UniqueId (weft/communicator.hpp).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "rendezvous/bootstrap.hpp"
#include "weft/unique_id.hpp"

namespace weft::detail {

// Most ids of a process that rank 0 has not used; when there are more, the oldest one's listener closes.
inline constexpr std::size_t most_unused_ids = 128;

// Blocks until all ranks are there. Rank 0 must be in the process that made the id, and can use it once. `name` is
// Config::name.
std::unique_ptr<Bootstrap> make_id_bootstrap(const UniqueId& id, int rank, int world_size,
                                             std::chrono::nanoseconds deadline, const std::string& name = {});

// Closes the listener of an id that no rank is going to use. Does nothing if there is none, or if `id` is none.
void discard(const UniqueId& id);

}  // namespace weft::detail
