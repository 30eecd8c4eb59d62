// Under compute-sanitizer the first launch of a kernel waits for all that runs on its GPU: for kernels of other ranks
// that share it, too, which wait for this one.
#pragma once

namespace weft::test {

// Launches every kernel once on each GPU: the library's on a group that has ended, and those of the tests.
void make_first_launches();

}  // namespace weft::test
