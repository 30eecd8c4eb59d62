// The grid of a call, which every operation has among its arguments.
#pragma once

namespace weft {

// The launch of a kernel. Each rank chooses its own launch: it never changes the bytes that cross the wire. `blocks` is
// also the most SMs that a call takes from kernels that run beside it.
struct Launch {
  // 2 to one more than the GPU's SMs (CPU ranks: 2); 0: chosen by size. One block does control, the others move data.
  // On GPUs a pipelined call of up to 64 blocks uses every data block. Other pipelined calls use a power of two of
  // them.
  int blocks = 0;
  // Per block, a multiple of 32 up to 512; 0: chosen by size. Up to 1024 if registers allow it: all_reduce of whole
  // packs (bf16 among two to four ranks, f16 and f32 among two or four) and all_reduce_rms_norm (bf16 among two or four
  // ranks).
  int threads = 0;
  // 2: GPUs start the blocks in clusters of two, on processors that lie side by side. A kernel that runs beside and
  // asks for clusters of two then finds its pairs. `blocks` must be even, and a number chosen by size is rounded down.
  // 1: single blocks; 0: as Weft likes, which is single blocks. CPU ranks ignore it.
  int cluster = 0;
};

}  // namespace weft
