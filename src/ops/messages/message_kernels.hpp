// Finds the kernel that moves messages.
#pragma once

#include "kernel/kernel.hpp"
#include "ops/messages/messages_work.hpp"

namespace weft::detail {

struct MessageFamily;  // ops/messages/message_instances.hpp

struct MessagesQuery {
  using Work = MessagesWork;
  constexpr bool operator==(const MessagesQuery&) const = default;
  constexpr MessagesQuery key() const { return *this; }
};
KernelFor<MessagesWork> find_kernel(const MessagesQuery& query);

}  // namespace weft::detail
