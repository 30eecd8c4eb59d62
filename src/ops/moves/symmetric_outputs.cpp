#include "ops/moves/symmetric_outputs.hpp"

#include <algorithm>
#include <cstddef>

#include "base/fingerprint.hpp"

namespace weft::detail {

void SymmetricPlace::add(const Extent& output) {
  if (output.bytes() == 0) return;  // it may lie anywhere
  const CommunicatorState& communicator = group_->communicator();
  const SymmetricState* const memory = symmetric_at(communicator, output.data, output.bytes());
  const bool first = memory_ == nullptr && !apart_;
  if (memory == nullptr || (!first && memory != memory_) || !group_->direct() || !memory->reaches(group_->members()) ||
      !rows_are_aligned16(output.data, output.row_bytes, output.stride)) {
    apart_ = true;
    return;
  }
  memory_ = memory;
  const std::byte* const begin = memory->part(communicator.rank());
  const auto offset = static_cast<const std::byte*>(output.data) - begin;
  mark_ = fingerprint("symmetric", mark_, memory->number(), offset, output.stride);
}

std::uint32_t SymmetricPlace::mark(std::uint32_t fingerprint) const {
  return found() ? detail::fingerprint("place", fingerprint, mark_) : fingerprint;
}

SymmetricWords SymmetricPlace::words() const {
  return found() ? SymmetricWords{.memory = memory_->number(), .mark = mark_} : SymmetricWords{};
}

std::string SymmetricWords::text() const {
  return mark != 0 ? fmt::format(" to symmetric memory {} place {:08x}", memory, mark) : "";
}

SymmetricOutputs SymmetricPlace::outputs() const {
  constexpr std::uint32_t kTileShift = 9;  // a pack for each thread of a block
  SymmetricOutputs outputs{.near = {}, .part = memory_->table(), .tile_shift = kTileShift};
  const std::size_t near = std::min<std::size_t>(group_->members().size(), kInlineRanks);
  for (std::size_t rank = 0; rank < near; ++rank) outputs.near[rank] = memory_->part(group_->members()[rank]);
  return outputs;
}

}  // namespace weft::detail
