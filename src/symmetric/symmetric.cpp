// Takes and frees a communicator's symmetric memory, and finds it for calls.
#include "weft/symmetric.hpp"

#include <fmt/format.h>

#include "base/argument.hpp"
#include "comm/call.hpp"
#include "comm/collective_free.hpp"
#include "symmetric/symmetric_state.hpp"

namespace weft {
namespace detail {

void SymmetricState::open() {
  const Fabric& fabric = communicator_.fabric();
  const int rank = communicator_.rank();
  std::vector<std::byte*> parts(kMaxRanks);
  for (int peer = 0; peer < communicator_.size(); ++peer) {
    std::byte* const memory = peer == rank ? fabric.own_memory(window()) : fabric.window(window(), peer);
    if (memory != nullptr) parts[static_cast<std::size_t>(peer)] = memory + kTableBytes;
  }
  communicator_.fabric().write(fabric.own_memory(window()), parts.data(), parts.size() * sizeof(std::byte*));
  parts_ = std::move(parts);
}

const std::byte* const* SymmetricState::table() const {
  return is_open() ? reinterpret_cast<const std::byte* const*>(part(communicator_.rank()) - kTableBytes) : nullptr;
}

bool SymmetricState::holds(const void* data, std::size_t bytes) const {
  if (!is_open()) return false;
  const std::uintptr_t offset =
      reinterpret_cast<std::uintptr_t>(data) - reinterpret_cast<std::uintptr_t>(part(communicator_.rank()));
  return offset < bytes_ && bytes <= bytes_ - offset;  // data in front of it is far beyond the end
}

const SymmetricState* symmetric_at(const CommunicatorState& communicator, const void* data, std::size_t bytes) {
  const SymmetricState* found = nullptr;
  communicator.each_tenant(SymmetricState::kFirstWindow, [&](const Tenant& tenant) {
    const auto& memory = static_cast<const SymmetricState&>(tenant);
    if (found == nullptr && memory.holds(data, bytes)) found = &memory;
  });
  return found;
}

std::shared_ptr<SymmetricState> allocate_symmetric(CommunicatorState& communicator, std::size_t bytes) {
  Bootstrap& bootstrap = communicator.bootstrap();
  const auto [slot, number] = communicator.next_slot(SymmetricState::kFirstWindow);
  bootstrap.agree_on("allocate symmetric memory", [&, slot = slot] {
    if (communicator.released()) {
      throw Error(Errc::released, "SymmetricMemory::allocate: the communicator's memory is released");
    }
    if (slot < SymmetricState::kMost) return;
    throw Error(Errc::invalid_argument,
                fmt::format("SymmetricMemory::allocate: {} exist, and there is room for no more", slot));
  });
  // Every rank looks at all of them, so all ranks throw if any does.
  const auto all_requested = bootstrap.all_gather_value("compare the bytes of symmetric memory", bytes);
  for (std::size_t rank = 0; rank < all_requested.size(); ++rank) {
    if (all_requested[rank] == all_requested[0]) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("SymmetricMemory::allocate: ranks disagree about bytes: rank 0 asks for {}, rank {} for {}",
                            all_requested[0], rank, all_requested[rank]));
  }
  check_argument(bytes >= 1 && bytes <= SymmetricState::kMostBytes, "SymmetricMemory::allocate: bytes", bytes,
                 "between 1 and 2^46");
  auto memory = std::make_shared<SymmetricState>(communicator, slot, number, bytes);
  communicator.open_tenant(*memory, "prepare symmetric memory");
  communicator.keep_tenant(SymmetricState::kFirstWindow, slot, memory);
  return memory;
}

void free_symmetric(CommunicatorState& communicator, SymmetricState& memory) {
  Bootstrap& bootstrap = communicator.bootstrap();
  Fabric& fabric = communicator.fabric();
  bootstrap.agree_on("free symmetric memory", [&] {
    if (communicator.released()) {
      throw Error(Errc::released, "SymmetricMemory::free: the communicator's memory is released");
    }
  });
  agree_on_freeing(
      bootstrap,
      {.call = "SymmetricMemory::free", .made = "allocated", .number = memory.number(), .freed = memory.freed()});
  // Kernels that have begun write to peers until they end, so no rank's part may go before all kernels have ended.
  bootstrap.agree_on("free symmetric memory: finish its calls", [&] { fabric.finish_calls(); });
  memory.set_freed();
  const int window = memory.window();
  communicator.drop_tenant(SymmetricState::kFirstWindow, memory.slot());
  bootstrap.agree_on("free symmetric memory: free its window", [&] { fabric.close_window(window); });
}

namespace {

const SymmetricState& opened(const SymmetricState& memory, const char* what) {
  if (memory.freed()) throw Error(Errc::released, fmt::format("{}: the memory has been freed", what));
  if (!memory.is_open()) throw Error(Errc::released, fmt::format("{}: the communicator's memory is released", what));
  return memory;
}

}  // namespace
}  // namespace detail

SymmetricMemory::SymmetricMemory(const Group& world, std::shared_ptr<detail::SymmetricState> state)
    : world_(world), state_(std::move(state)) {}

SymmetricMemory SymmetricMemory::allocate(const Communicator& communicator, std::size_t bytes) {
  const Group world = detail::held(communicator.world());
  return SymmetricMemory(world, detail::allocate_symmetric(world.state().communicator(), bytes));
}

void SymmetricMemory::free() {
  const SymmetricMemory self = *this;  // keeps the state, as detail::held() keeps a group
  detail::free_symmetric(self.world_.state().communicator(), *self.state_);
}

void* SymmetricMemory::data() const {
  return detail::opened(*state_, "SymmetricMemory::data").part(world_.rank());
}
std::size_t SymmetricMemory::bytes() const {
  return state_->bytes();
}
void* SymmetricMemory::peer(int rank) const {
  detail::check_argument(rank >= 0 && rank < world_.size(), "SymmetricMemory::peer: rank", rank,
                         fmt::format("between 0 and {}", world_.size() - 1));
  return detail::opened(*state_, "SymmetricMemory::peer").part(rank);
}

}  // namespace weft
