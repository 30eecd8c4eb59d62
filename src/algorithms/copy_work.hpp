// What a copy between ranks is called with.
#pragma once

#include <cstdint>

#include "team/function.hpp"
#include "wire/line.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kMaxTensors = 8;

// One of the tensors that travel in one call. A message is the rows of one after those of the other, each beginning
// with a unit of the wire of its own.
struct CopyTensor {
  const void* input;
  void* output;
  std::uint64_t row_bytes, input_stride, output_stride;
};

template <class Shares_, std::uint32_t most_tensors>
struct CopyWork {
  Shares_ shares;
  std::uint64_t line_packs;  // of the wire: longer messages flow
  std::uint32_t tensors;
  CopyTensor tensor[most_tensors];
};

// The two ways in which a message is counted: packs as they are, and bundles of lines.
struct InPacks {
  static WEFT_FN std::uint64_t count(std::uint64_t packs) { return packs; }
};
template <class Wire>
struct InBundles {
  static WEFT_FN std::uint64_t count(std::uint64_t packs) { return bundles_for<Wire>(packs); }
};

}  // namespace weft::detail
