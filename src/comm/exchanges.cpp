// The exchanges of a communicator: how they come and go.
#include <fmt/format.h>

#include <algorithm>

#include "comm/exchange_state.hpp"
#include "comm/freeing.hpp"
#include "comm/state.hpp"

namespace weft::detail {

std::shared_ptr<ExchangeState> CommunicatorState::make_exchange(GroupState& group, const ExchangeArgs& args) {
  const auto hole = std::ranges::find(exchanges_, nullptr);
  const auto slot = static_cast<std::size_t>(hole - exchanges_.begin());
  bootstrap_->agree_on("create an exchange", [&] {
    if (released_) throw Error(Errc::released, "Exchange::create: the communicator's memory is released");
    const int most = (kMaxGroups - 1 - config_.max_groups) / 2;  // each has a channel for dispatch and one for combine
    if (static_cast<int>(slot) >= most) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("Exchange::create: {} exchanges exist, and with Config::max_groups {} there is room for {}", slot,
                      config_.max_groups, most));
    }
    check_exchange(group, args);
  });
  agree_on_exchange(*bootstrap_, group, args);
  auto exchange = std::make_shared<ExchangeState>(group, args, static_cast<int>(slot), exchanges_made_);
  std::size_t bytes = 0;
  for (const std::size_t wish : bootstrap_->all_gather_value("size of the exchange", exchange->needed_bytes())) {
    bytes = std::max(bytes, wish);
  }
  exchange->set_window_bytes(bytes);
  forbid_abort();
  try {
    fabric_->open_window(*bootstrap_, exchange->window(), bytes);
    bootstrap_->agree_on("prepare the exchange", [&] { exchange->arm(config_.first_epoch, true); });
  } catch (...) {
    fabric_->close_window(exchange->window());
    allow_abort();
    throw;
  }
  allow_abort();
  ++exchanges_made_;
  const std::scoped_lock lock(mutex_);
  if (slot == exchanges_.size()) exchanges_.emplace_back();
  exchanges_[slot] = exchange;
  return exchange;
}

void CommunicatorState::free_exchange(const std::shared_ptr<ExchangeState>& exchange) {
  bootstrap_->agree_on("free an exchange", [&] {
    if (released_) throw Error(Errc::released, "Exchange::free: the communicator's memory is released");
  });
  agree_on_freeing(
      *bootstrap_,
      {.call = "Exchange::free", .made = "created", .number = exchange->number(), .freed = exchange->freed()});
  // What is on the GPU's queues is made; what comes now ends at once. Kernels that have begun write to peers until they
  // end, so nobody's window may go before all of them have.
  bootstrap_->agree_on("free an exchange: finish its calls", [&] { fabric_->finish_calls(); });
  exchange->set_freed();
  bootstrap_->agree_on("free an exchange: end what comes now", [&] {
    exchange->set_released();
    fabric_->finish_calls();
  });
  {
    const std::scoped_lock lock(mutex_);
    exchanges_[static_cast<std::size_t>(exchange->slot())] = nullptr;
  }
  bootstrap_->agree_on("free an exchange: free its window", [&] { fabric_->close_window(exchange->window()); });
}

}  // namespace weft::detail
