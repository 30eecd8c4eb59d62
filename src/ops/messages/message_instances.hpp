// The kernel of messages.
#pragma once

#include "kernel/instances.hpp"
#include "ops/messages/message_kernels.hpp"
#include "ops/messages/move_messages.hpp"

namespace weft::detail {

struct MessageFamily {
  using List = Instances<Instance<MoveMessages, MessagesQuery{}>>;
};

}  // namespace weft::detail
