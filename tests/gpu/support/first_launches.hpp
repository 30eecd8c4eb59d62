// Under compute-sanitizer a kernel's first launch waits for everything on its GPU. This includes kernels of other ranks
// that share it, and they wait for this rank.
#pragma once

namespace weft::test {

// Launches every kernel once on each GPU: the library's on a group that has ended, and the tests' own.
void make_first_launches();

}  // namespace weft::test
