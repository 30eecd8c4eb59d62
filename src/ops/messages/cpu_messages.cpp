#include "kernel/kernel_table.hpp"
#include "ops/messages/message_instances.hpp"

namespace weft::detail {

template std::span<const Kernel> kernels_of<MessageFamily>();

KernelFor<MessagesWork> find_kernel(const MessagesQuery& query) {
  return kernel_for<MessageFamily>(query);
}

}  // namespace weft::detail
