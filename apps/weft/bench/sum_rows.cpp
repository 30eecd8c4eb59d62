#include "bench/sum_rows.hpp"

#include <cstddef>

#include "numeric/numeric.hpp"

namespace weft::cli {

void sum_rows_on_cpu(const SumRows& of) {
  const auto* const rows = static_cast<const std::uint16_t*>(of.rows);
  auto* const output = static_cast<std::uint16_t*>(of.output);
  for (std::size_t token = 0; token < of.tokens; ++token) {
    for (std::size_t i = 0; i < of.columns; ++i) {
      float sum = 0;
      for (std::int32_t row = of.firsts[token]; row < of.firsts[token + 1]; ++row)
        sum += detail::bf16_to_f32(rows[static_cast<std::size_t>(row) * of.columns + i]);
      output[token * of.columns + i] = detail::f32_to_bf16(sum);
    }
  }
}

void sum_rows(const SumRows& args, Device device, Stream stream) {
#if WEFT_WITH_CUDA
  if (device == Device::cuda) return enqueue_sum_rows(args, stream);
#endif
  static_cast<void>(device), static_cast<void>(stream);
  sum_rows_on_cpu(args);
}

}  // namespace weft::cli
