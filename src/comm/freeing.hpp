// What an exchange's free() and that of symmetric memory begin with.
#pragma once

#include <cstdint>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

struct ToFree {
  const char* call;  // "Exchange::free"
  const char* made;  // "created"
  std::uint64_t number;
  bool freed;
};
// Collective. Throws on all ranks where one names what has been freed (Errc::released), or where ranks name different
// ones (Errc::invalid_argument).
void agree_on_freeing(Bootstrap& bootstrap, const ToFree& mine);

}  // namespace weft::detail
