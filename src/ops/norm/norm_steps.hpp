// Parts of an all-reduce with residual and norm that takes more than one kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/pack.hpp"
#include "ops/norm/norm_work.hpp"

namespace weft::detail {

// A null tensor stays null.
template <class T>
T* further(T* data, std::uint64_t bytes) {
  return data == nullptr ? nullptr : reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(data) + bytes);
}

// `rows` rows of `work`, from `first` on.
inline NormWork rows_of(NormWork work, std::uint64_t first, std::uint64_t rows) {
  constexpr std::uint64_t pack = sizeof(Pack);
  work.input = further(work.input, first * work.input_stride * pack);
  work.residual = further(work.residual, first * work.residual_stride * pack);
  work.residual_output = further(work.residual_output, first * work.residual_output_stride * pack);
  work.output = further(work.output, first * work.output_stride * pack);
  work.fp8 = further(work.fp8, first * work.fp8_stride * pack / 2);
  work.scales = further(work.scales, first * work.scale_row_stride * (work.power_of_two ? 1 : sizeof(float)));
  work.rows = static_cast<std::uint32_t>(rows);
  return work;
}

// Rows that no buffer holds whole go through buffers in pieces. Each piece is a row to its kernel, which only makes the
// new residual. A last kernel, which is local, norms the new residuals. So every rank rounds and adds as for rows that
// fit, with the same bits.
class NormSteps {
 public:
  NormSteps(const NormWork& work, std::uint64_t piece_packs)
      : work_(work), piece_packs_(piece_packs), pieces_((work.row_packs + piece_packs - 1) / piece_packs) {}

  // Kernels that sum, one piece each. `norm()` is the rest, for the kernel behind them.
  std::uint64_t sums() const { return work_.rows * pieces_; }

  NormWork sum(std::uint64_t i) const {
    const std::uint64_t first = i % pieces_ * piece_packs_, bytes = first * sizeof(Pack);
    NormWork piece = rows_of(work_, i / pieces_, 1);
    piece.input = further(piece.input, bytes);
    piece.residual = further(piece.residual, bytes);
    piece.residual_output = further(piece.residual_output, bytes);
    piece.output = nullptr;
    piece.scaling = RowScaling::none;
    piece.row_packs = static_cast<std::uint32_t>(std::min(piece_packs_, work_.row_packs - first));
    return piece;
  }

  NormWork norm() const {
    NormWork rows = work_;
    rows.residual = nullptr;  // is in the sums
    rows.residual_stride = 0;
    return rows;
  }

 private:
  NormWork work_;
  std::uint64_t piece_packs_, pieces_;
};

}  // namespace weft::detail
