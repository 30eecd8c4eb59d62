// Ranks that do not reach each other's memory, as on two hosts. The fabric is the CPU's, but each half of the ranks
// sees only its own windows. A stand-in for NCCL keeps NCCL's contracts. It replaces the fabric of the executable.
#pragma once

#include <cstddef>

namespace weft::test {

// Forgets the groups of earlier worlds.
void meet_anew();
// Calls of operator new that the stand-in has made in the calling thread.
std::size_t taken_by_nccl();

}  // namespace weft::test
