// The owner's last sum of an emulated expert parallelism: a token's row is the sum of its virtual tokens' rows.
#pragma once

#include <cstdint>

#include "weft/types.hpp"

namespace weft::cli {

struct SumRows {
  const void* rows = nullptr;             // [virtual tokens, columns] bf16
  void* output = nullptr;                 // [tokens, columns] bf16
  const std::int32_t* firsts = nullptr;   // [tokens + 1]
  std::uint32_t tokens = 0, columns = 0;  // columns: a multiple of 8
};
void enqueue_sum_rows(const SumRows& args, Stream stream);  // on GPUs, only in a build with CUDA
void sum_rows_on_cpu(const SumRows& args);
// On the device of the tensors.
void sum_rows(const SumRows& args, Device device, Stream stream);

}  // namespace weft::cli
