// Counts allocations of memory from the heap.
#pragma once

#include <cstddef>

namespace weft::test {

// Calls of operator new that the calling thread has made.
std::size_t taken_by_this_thread();

}  // namespace weft::test
