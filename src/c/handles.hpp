// The handles: each holds an object of C++.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "c/boundary.hpp"
#include "weft/c.h"
#include "weft/weft.hpp"

struct weft_communicator {
  weft::Communicator communicator;
};
struct weft_group {
  weft::Group group;
};
struct weft_exchange {
  weft::MoeExchange exchange;
  std::vector<weft_expert_ranks> ranks_of_expert;  // views of the tables in exchange.args()
};
struct weft_moe_layer {
  weft::MoeLayer layer;
};
struct weft_symmetric_memory {
  weft::SymmetricMemory memory;
};
struct weft_recording {
  weft::Recording recording;
};

namespace weft::c {

// Makes an object and the caller's handle of it. If it fails, the handle is as it was.
template <class Handle, class Make>
weft_code give_handle(const char* name, Handle** handle, Make&& make) noexcept {
  return guarded([&] {
    Handle*& place = at(name, handle);
    place = new Handle{make()};
  });
}

}  // namespace weft::c
