// Kernels that tests run around the library's.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace weft::test {

// Loads all kernels on the current device, since the first launch of a kernel may wait for the GPU.
void load_test_kernels();
// Launches each once on the current device with nothing to do.
void launch_test_kernels();

// Does nothing for `time` (at most a second).
void delay(std::chrono::nanoseconds time, cudaStream_t stream);
// Occupies all processors except `spare` for `time` (at most a second), so that no other block fits on them.
void hog(int spare, std::chrono::nanoseconds time, cudaStream_t stream);

// data[i] += by
void increment(std::int32_t* data, std::size_t count, cudaStream_t stream, std::int32_t by = 1);

// Adds the number of differing bytes to *wrong and overwrites `got`, so that the test sees if the next call does
// nothing.
void count_differences(std::byte* got, const std::byte* wanted, std::size_t bytes, unsigned long long* wrong,
                       cudaStream_t stream);

// For messages too large for the host: fills with small integers of rank and index as bf16. Adds to *wrong the number
// of elements that are not their sum over `ranks` ranks.
void fill_pattern(std::uint16_t* data, std::size_t count, int rank, cudaStream_t stream);
void count_wrong_sums(const std::uint16_t* data, std::size_t count, int ranks, unsigned long long* wrong,
                      cudaStream_t stream);

}  // namespace weft::test
