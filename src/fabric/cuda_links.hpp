// Finds the links between the GPUs of ranks.
#pragma once

#include "fabric/links.hpp"
#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

// Collective; `device` is this rank's.
LinkTable gather_links(Bootstrap& bootstrap, int device);

}  // namespace weft::detail
