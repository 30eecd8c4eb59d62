// A tenant lives in a communicator beside its groups. It has a window of its own, which goes and comes with the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace weft::detail {

class GroupState;

class Tenant {
 public:
  virtual ~Tenant() = default;

  virtual int window() const = 0;  // its number; window 0 is the communicator's
  virtual std::size_t window_bytes() const = 0;
  // Graphs hold this rank's own address of the window, even if no other rank reaches it.
  virtual bool own_memory_counts() const { return false; }
  // The window has been taken, or taken again: as GroupState::arm().
  virtual void arm(std::optional<std::uint32_t> first_epoch, bool moved) = 0;
  // release(): calls on the GPU's queues or in graphs end at once from now on.
  virtual void set_released() {}
  // release(): no rank writes any more, and the window is about to go.
  virtual void close() {}
  // Channels whose faults the communicator reports. They share one history, because their calls depend on each other.
  virtual std::vector<const GroupState*> channels() const { return {}; }

 protected:
  Tenant() = default;
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;
};

// The slot of the next tenant of a kind, and how many of the kind were ever made before it.
struct TenantSlot {
  int slot;
  std::uint64_t number;
};

// Tenants of one kind, whose windows have neighbouring numbers.
struct Tenants {
  int first_window;
  std::uint64_t made = 0;
  std::vector<std::shared_ptr<Tenant>> by_slot = {};  // null if freed
};

}  // namespace weft::detail
