// Symmetric memory of a communicator: how it comes and goes, and how calls find theirs.
#include "weft/symmetric.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "comm/call.hpp"
#include "comm/freeing.hpp"
#include "comm/symmetric_state.hpp"
#include "core/argument.hpp"

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
  return offset < bytes_ && bytes <= bytes_ - offset;  // what lies in front is far beyond the end
}

const SymmetricState* CommunicatorState::symmetric_at(const void* data, std::size_t bytes) const {
  for (const auto& memory : symmetric_) {
    if (memory != nullptr && memory->holds(data, bytes)) return memory.get();
  }
  return nullptr;
}

std::shared_ptr<SymmetricState> CommunicatorState::allocate_symmetric(std::size_t bytes) {
  const auto hole = std::ranges::find(symmetric_, nullptr);
  const auto slot = static_cast<std::size_t>(hole - symmetric_.begin());
  bootstrap_->agree_on("allocate symmetric memory", [&] {
    if (released_) throw Error(Errc::released, "SymmetricMemory::allocate: the communicator's memory is released");
    if (slot < SymmetricState::kMost) return;
    throw Error(Errc::invalid_argument,
                fmt::format("SymmetricMemory::allocate: {} exist, and there is room for no more", slot));
  });
  // Every rank looks at all of them, and so throws where any throws.
  const auto wishes = bootstrap_->all_gather_value("compare the bytes of symmetric memory", bytes);
  for (std::size_t rank = 0; rank < wishes.size(); ++rank) {
    if (wishes[rank] == wishes[0]) continue;
    throw Error(Errc::invalid_argument,
                fmt::format("SymmetricMemory::allocate: ranks disagree about bytes: rank 0 asks for {}, rank {} for {}",
                            wishes[0], rank, wishes[rank]));
  }
  check_argument(bytes >= 1 && bytes <= SymmetricState::kMostBytes, "SymmetricMemory::allocate: bytes", bytes,
                 "between 1 and 2^46");
  auto memory = std::make_shared<SymmetricState>(*this, static_cast<int>(slot), symmetric_made_, bytes);
  forbid_abort();
  try {
    fabric_->open_window(*bootstrap_, memory->window(), memory->window_bytes());
    bootstrap_->agree_on("prepare symmetric memory", [&] { memory->open(); });
  } catch (...) {
    fabric_->close_window(memory->window());
    allow_abort();
    throw;
  }
  allow_abort();
  ++symmetric_made_;
  if (slot == symmetric_.size()) symmetric_.emplace_back();
  symmetric_[slot] = memory;
  return memory;
}

void CommunicatorState::free_symmetric(SymmetricState& memory) {
  bootstrap_->agree_on("free symmetric memory", [&] {
    if (released_) throw Error(Errc::released, "SymmetricMemory::free: the communicator's memory is released");
  });
  agree_on_freeing(
      *bootstrap_,
      {.call = "SymmetricMemory::free", .made = "allocated", .number = memory.number(), .freed = memory.freed()});
  // Kernels that have begun write to peers until they end, so nobody's part may go before all of them have.
  bootstrap_->agree_on("free symmetric memory: finish its calls", [&] { fabric_->finish_calls(); });
  memory.set_freed();
  const int window = memory.window();
  symmetric_[static_cast<std::size_t>(memory.slot())] = nullptr;
  bootstrap_->agree_on("free symmetric memory: free its window", [&] { fabric_->close_window(window); });
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
  return SymmetricMemory(world, world.state().communicator().allocate_symmetric(bytes));
}

void SymmetricMemory::free() {
  const SymmetricMemory self = *this;  // as detail::held() has a group
  self.world_.state().communicator().free_symmetric(*self.state_);
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
