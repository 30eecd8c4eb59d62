// Arguments of a kernel that copies between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/function.hpp"
#include "protocol/channel.hpp"
#include "wire/line.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kMaxTensors = 8;

// One of the tensors that travel in one call. A message is the rows of each tensor in turn; each tensor begins with its
// own unit of the wire.
struct CopyTensor {
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride;
};

// Outputs that peers write to: at the same place of every rank's part of one symmetric memory.
struct SymmetricOutputs {
  std::byte* near[kInlineRanks];  // parts of the group's first ranks, as this rank reaches them
  const std::byte* const* part;   // by world rank, in memory of the device
  std::uint32_t tile_shift;       // 2^this packs are a tile; the same on every rank

  WEFT_FN std::byte* part_of(const Call& call, std::uint32_t rank) const {
    std::byte* const close = near[rank % kInlineRanks];  // as region_of()
    return rank < kInlineRanks ? close : const_cast<std::byte*>(part[call.channel->member[rank]]);
  }
};
struct OwnOutputs {};

// `symmetric`: outputs lie in symmetric memory.
template <class Partition_, std::uint32_t most_tensors, bool symmetric = false>
struct CopyWork {
  using Partition = Partition_;
  static constexpr bool kOneTensor = most_tensors == 1;

  Partition_ partition;
  std::uint64_t line_packs;  // of the wire: longer messages go in chunks
  std::uint32_t tensors;
  CopyTensor tensor[most_tensors];
  std::conditional_t<symmetric, SymmetricOutputs, OwnOutputs> outputs = {};

  WEFT_FN std::uint32_t count() const { return kOneTensor ? 1 : tensors; }
};

// Two units for a message's length: packs of payload, and bundles of lines.
struct InPacks {
  static WEFT_FN std::uint64_t count(std::uint64_t packs) { return packs; }
};
template <class Wire>
struct InBundles {
  static WEFT_FN std::uint64_t count(std::uint64_t packs) { return bundles_for<Wire>(packs); }
};

// Units of a message of `rows` rows.
template <class Unit>
WEFT_FN std::uint64_t length(const CopyTensor& tensor, std::uint64_t rows) {
  return Unit::count((rows * tensor.row_bytes + sizeof(Pack) - 1) / sizeof(Pack));
}
template <class Unit, class Partition, std::uint32_t most_tensors, bool symmetric>
WEFT_FN std::uint64_t length(const CopyWork<Partition, most_tensors, symmetric>& work, std::uint64_t rows) {
  std::uint64_t units = 0;
  for (std::uint32_t t = 0; t < work.count(); ++t) units += length<Unit>(work.tensor[t], rows);
  return units;
}

// Reduces `pack` to its number within its tensor, which is returned.
template <class Partition, std::uint32_t most_tensors, bool symmetric>
WEFT_FN const CopyTensor& tensor_of(const CopyWork<Partition, most_tensors, symmetric>& work, std::uint64_t rows,
                                    std::uint64_t& pack) {
  std::uint32_t t = 0;
  for (; t + 1 < work.count(); ++t) {
    const std::uint64_t packs = length<InPacks>(work.tensor[t], rows);
    if (pack < packs) break;
    pack -= packs;
  }
  return work.tensor[t];
}

// The place of a unit's payload. No tensor: the unit carries nothing, as the last tile of a tensor need not be full. In
// 32 bits, because messages that go in lines are short. A number instead of a pointer: a choice between null and an
// address in the kernel's arguments makes nvcc read all arguments through pointers
// (docs/notes/0024-arguments-are-passed-not-kept.md).
struct Home {
  static constexpr std::uint32_t kNoTensor = kMaxTensors;
  std::uint32_t tensor = kNoTensor;
  std::uint32_t number = 0;

  WEFT_FN bool exists() const { return tensor != kNoTensor; }
};
template <class Wire, class Partition, std::uint32_t most_tensors, bool symmetric>
WEFT_FN Home home_of(const CopyWork<Partition, most_tensors, symmetric>& work, std::uint64_t rows,
                     std::uint32_t number) {
  for (std::uint32_t t = 0; t < work.count(); ++t) {
    const auto packs = static_cast<std::uint32_t>(length<InPacks>(work.tensor[t], rows));
    const std::uint32_t units = bundles_for<Wire>(packs);
    if (number >= units) {
      number -= units;
      continue;
    }
    if (payload_pack<Wire>(number, 0) >= packs) break;
    return {t, number};
  }
  return {};
}

}  // namespace weft::detail
