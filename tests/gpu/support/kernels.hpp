// Kernels that tests put around the library's.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weft::test {

// Loads all of them on the current device: the first launch of a kernel may wait for the GPU otherwise.
void load_test_kernels();
// Each once, on the current device, with nothing to do.
void launch_test_kernels();

// Does nothing for so long (at most a second).
void delay(std::chrono::nanoseconds time, cudaStream_t stream);
// Takes all processors but `spare` for so long (at most a second), so that no other block fits on them.
void hog(int spare, std::chrono::nanoseconds time, cudaStream_t stream);

// data[i] += by
void increment(std::int32_t* data, std::size_t count, cudaStream_t stream, std::int32_t by = 1);

// Adds to *wrong how many bytes differ, and spoils those of `got`, so that a call that does nothing is seen next time.
void count_differences(std::byte* got, const std::byte* wanted, std::size_t bytes, unsigned long long* wrong,
                       cudaStream_t stream);

// For messages too large for the host: small integers of rank and index, as bf16, and the number of elements that are
// not their sum over `ranks` ranks (added to *wrong).
void fill_pattern(std::uint16_t* data, std::size_t count, int rank, cudaStream_t stream);
void count_wrong_sums(const std::uint16_t* data, std::size_t count, int ranks, unsigned long long* wrong,
                      cudaStream_t stream);

}  // namespace weft::test
