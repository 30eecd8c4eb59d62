// The definition of an exchange, from C and back.
#pragma once

#include "c/mirror.hpp"

namespace weft::c {

template <>
struct Mirror<weft_moe_exchange_args> {
  using Cpp = MoeExchangeArgs;
  static constexpr const char* name = "weft_moe_exchange_args";
  static constexpr std::size_t least = offsetof(weft_moe_exchange_args, scale_order);
  static void fields(auto& c, auto& cpp, auto copy) {  // besides the tables
    copy(c.tokens, cpp.tokens);
    copy(c.hidden, cpp.hidden);
    copy(c.experts, cpp.experts);
    copy(c.top_k, cpp.top_k);
    copy(c.type, cpp.type);
    copy(c.cast, cpp.cast);
    copy(c.scale_order, cpp.scale_order);
    copy(c.scale_bytes, cpp.scale_bytes);
    copy(c.combine_type, cpp.combine_type);
    copy(c.layout, cpp.layout);
    copy(c.alignment, cpp.alignment);
    copy(c.capacity, cpp.capacity);
    copy(c.overflow, cpp.overflow);
    copy(c.weighted, cpp.weighted);
    copy(c.weights_at_combine, cpp.weights_at_combine);
    copy(c.handles, cpp.handles);
    copy(c.path, cpp.path);
    copy(c.ring_rows, cpp.ring_rows);
    copy(c.slot_tokens, cpp.slot_tokens);
    copy(c.maps, cpp.maps);
    copy(c.repeatable, cpp.repeatable);
    copy(c.blocks, cpp.blocks);
  }
};

// With the tables.
MoeExchangeArgs definition_of(const weft_moe_exchange_args* given);

}  // namespace weft::c
