// Launches in clusters of two blocks.
#pragma once

#include "kernel/kernel.hpp"

namespace weft::detail {

// As launch_on_gpu(), of an even number of blocks.
void launch_in_pairs(const KernelCall& call);
// The number of blocks of the most demanding kernel, with its most threads, that fit on the current device at once in
// clusters of two. Behind load_kernels().
int most_paired_blocks();

}  // namespace weft::detail
