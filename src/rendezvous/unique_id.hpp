// The meeting behind a UniqueId (weft/communicator.hpp).
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "rendezvous/bootstrap.hpp"
#include "weft/communicator.hpp"

namespace weft::detail {

// Ids of a process that rank 0 has not used; the listener of the oldest closes when there are more.
inline constexpr std::size_t most_unused_ids = 128;

// Blocks until all ranks are there. Rank 0 must be in the process that made the id, and can use it once. `name` is
// Config::name.
std::unique_ptr<Bootstrap> make_id_bootstrap(const UniqueId& id, int rank, int world_size,
                                             std::chrono::nanoseconds deadline, const std::string& name = {});

// Closes the listener of an id that nobody is going to use; nothing where there is none, or `id` is none.
void discard(const UniqueId& id);

}  // namespace weft::detail
