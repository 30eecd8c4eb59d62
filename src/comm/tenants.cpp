// Makes, keeps and drops the tenants of a communicator.
#include <algorithm>

#include "comm/state.hpp"

namespace weft::detail {

const Tenants* CommunicatorState::tenants_of(int first_window) const {
  const auto found = std::ranges::find(tenants_, first_window, &Tenants::first_window);
  return found == tenants_.end() ? nullptr : &*found;
}

TenantSlot CommunicatorState::next_slot(int first_window) const {
  const Tenants* const tenants = tenants_of(first_window);
  if (tenants == nullptr) return {0, 0};
  const auto hole = std::ranges::find(tenants->by_slot, nullptr);
  return {static_cast<int>(hole - tenants->by_slot.begin()), tenants->made};
}

void CommunicatorState::open_tenant(Tenant& tenant, std::string_view what) {
  forbid_abort();
  try {
    fabric_->open_window(*bootstrap_, tenant.window(), tenant.window_bytes());
    bootstrap_->agree_on(what, [&] { tenant.arm(first_epoch_, true); });
  } catch (...) {
    fabric_->close_window(tenant.window());
    allow_abort();
    throw;
  }
  allow_abort();
}

void CommunicatorState::keep_tenant(int first_window, int slot, std::shared_ptr<Tenant> tenant) {
  const std::scoped_lock lock(mutex_);
  auto tenants = std::ranges::lower_bound(tenants_, first_window, {}, &Tenants::first_window);
  if (tenants == tenants_.end() || tenants->first_window != first_window) {
    tenants = tenants_.insert(tenants, {.first_window = first_window});
  }
  ++tenants->made;
  const auto place = static_cast<std::size_t>(slot);
  if (place == tenants->by_slot.size()) tenants->by_slot.emplace_back();
  tenants->by_slot[place] = std::move(tenant);
}

void CommunicatorState::drop_tenant(int first_window, int slot) {
  const std::scoped_lock lock(mutex_);
  const auto tenants = std::ranges::find(tenants_, first_window, &Tenants::first_window);
  tenants->by_slot[static_cast<std::size_t>(slot)] = nullptr;
}

}  // namespace weft::detail
