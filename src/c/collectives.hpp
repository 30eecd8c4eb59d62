// Mirrors that several families need.
#pragma once

#include "c/mirror.hpp"

namespace weft::c {

template <>
struct Mirror<weft_counts> {
  using Cpp = Counts;
  static constexpr const char* name = "weft_counts";
  static constexpr std::size_t least = offsetof(weft_counts, on_host);
  static void fields(auto& c, auto& cpp, auto copy) {
    copy(c.rows, cpp.rows);
    copy(c.sharding, cpp.sharding);
    copy(c.padding, cpp.padding);
    copy(c.slot_rows, cpp.slot_rows);
    copy(c.slots, cpp.slots);
    copy(c.on_host, cpp.on_host);
  }
};

// The tensors of calls that move rows.
void row_fields(auto& c, auto& cpp, auto copy) {
  copy(c.input, cpp.input);
  copy(c.output, cpp.output);
  copy(c.input_stride, cpp.input_stride);
  copy(c.output_stride, cpp.output_stride);
}

// Messages have their tags themselves.
void launch_fields(auto& c, auto& cpp, auto copy) {
  copy(c.stream, cpp.stream);
  if constexpr (requires { cpp.tag; }) copy(c.tag, cpp.tag);
  copy(c.blocks, cpp.launch.blocks);
  copy(c.threads, cpp.launch.threads);
  copy(c.cluster, cpp.launch.cluster);
}

}  // namespace weft::c
