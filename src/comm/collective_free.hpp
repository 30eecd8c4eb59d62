// The common first step of MoeExchange::free() and SymmetricMemory::free().
#pragma once

#include <cstdint>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

struct ToFree {
  const char* call;  // "MoeExchange::free"
  const char* made;  // "created"
  std::uint64_t number;
  bool freed;
};
// Collective. Throws on all ranks: Errc::released if one names something that has been freed, Errc::invalid_argument if
// ranks name different ones.
void agree_on_freeing(Bootstrap& bootstrap, const ToFree& mine);

}  // namespace weft::detail
