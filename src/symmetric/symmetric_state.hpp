// The state behind a SymmetricMemory: its own window, with a table of all ranks' parts in front of this rank's part.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "comm/state.hpp"
#include "comm/tenant.hpp"

namespace weft::detail {

class SymmetricState final : public Tenant {
 public:
  static constexpr int kFirstWindow = kMaxGroups;  // of slot 0; those of exchanges are lower
  static constexpr int kMost = 64;                 // of one communicator, at a time
  static constexpr std::size_t kMostBytes = std::size_t{1} << 46;

  // `number`: among all that the communicator ever took.
  SymmetricState(CommunicatorState& communicator, int slot, std::uint64_t number, std::size_t bytes)
      : communicator_(communicator), slot_(slot), number_(number), bytes_(bytes) {}

  int slot() const { return slot_; }
  std::uint64_t number() const { return number_; }  // the same on every rank
  std::size_t bytes() const { return bytes_; }
  int window() const override { return kFirstWindow + slot_; }
  std::size_t window_bytes() const override {
    return kTableBytes + (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
  }
  bool freed() const { return freed_; }

  // From the window's opening until its closing.
  void open();
  void arm(std::optional<std::uint32_t>, bool) override { open(); }
  bool own_memory_counts() const override { return true; }
  void close() override { parts_.clear(); }
  void set_freed() {
    freed_ = true;
    close();
  }
  bool is_open() const { return !parts_.empty(); }

  // The user's part, at its address here. Null if it is out of reach, and while the window is closed.
  std::byte* part(int world_rank) const { return is_open() ? parts_[static_cast<std::size_t>(world_rank)] : nullptr; }
  // part(r) by world rank r, in memory of this rank's device.
  const std::byte* const* table() const;
  // Whether all of these world ranks' parts can be reached.
  bool reaches(const std::vector<int>& ranks) const {
    return std::ranges::all_of(ranks, [&](int rank) { return part(rank) != nullptr; });
  }
  bool holds(const void* data, std::size_t bytes) const;

 private:
  static constexpr std::size_t kAlignment = 256;
  static constexpr std::size_t kTableBytes =
      (kMaxRanks * sizeof(std::byte*) + kAlignment - 1) / kAlignment * kAlignment;

  CommunicatorState& communicator_;
  int slot_;
  std::uint64_t number_;
  std::size_t bytes_;
  bool freed_ = false;
  std::vector<std::byte*> parts_;  // by world rank; empty while the window is closed
};

// Both are collective over the world.
std::shared_ptr<SymmetricState> allocate_symmetric(CommunicatorState& communicator, std::size_t bytes);
void free_symmetric(CommunicatorState& communicator, SymmetricState& memory);
// The symmetric memory that has all of `bytes` bytes at `data` on this rank; null if none has.
const SymmetricState* symmetric_at(const CommunicatorState& communicator, const void* data, std::size_t bytes);

}  // namespace weft::detail
