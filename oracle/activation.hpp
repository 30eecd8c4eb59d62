// The activation between an expert's two GEMMs.
#pragma once

#include "oracle/fp8.hpp"
#include "oracle/number.hpp"

namespace weft::oracle {

// silu(gate) · up, where silu(x) = x / (1 + e^−x).
double silu_mul(double gate, double up);

// A row as the second GEMM reads it, as bits of f32. `gate_up`: gates of `type`, then as many ups. silu is within three
// units of f32; below −86 it may be −0. The product is rounded to f32, then to `type`.
std::vector<RightBits> activated_row(Type type, std::span<const std::byte> gate_up);
// The same as e4m3, each number times its scale. Every `columns` columns have a scale. Products are finite.
std::vector<RightBits> activated_row(Type type, std::span<const std::byte> gate_up, std::size_t columns, Scales scales);

}  // namespace weft::oracle
