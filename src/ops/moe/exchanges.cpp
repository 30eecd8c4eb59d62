// Creates and frees the exchanges of a communicator.
#include <fmt/format.h>

#include <algorithm>

#include "base/log.hpp"
#include "comm/collective_free.hpp"
#include "comm/state.hpp"
#include "ops/moe/exchange_state.hpp"

namespace weft::detail {

std::shared_ptr<ExchangeState> make_exchange(GroupState& group, const MoeExchangeArgs& args) {
  CommunicatorState& communicator = group.communicator();
  Bootstrap& bootstrap = communicator.bootstrap();
  const auto [slot, number] = communicator.next_slot(ExchangeState::kFirstWindow);
  bootstrap.agree_on("create an exchange", [&, slot = slot] {
    if (communicator.released()) {
      throw Error(Errc::released, "MoeExchange::create: the communicator's memory is released");
    }
    const int max_groups = communicator.config().max_groups;
    const int most = (kMaxGroups - 1 - max_groups) / 2;  // each has a channel for dispatch and one for combine
    if (slot >= most) {
      throw Error(
          Errc::invalid_argument,
          fmt::format("MoeExchange::create: {} exchanges exist, and with Config::max_groups {} there is room for {}",
                      slot, max_groups, most));
    }
    check_exchange(group, args);
  });
  agree_on_exchange(bootstrap, group, args);
  auto exchange = std::make_shared<ExchangeState>(group, args, slot, number);
  if (!exchange->tuning().empty())
    logger().info("rank {} of {}: exchange {} is tuned by {}", group.rank(), group.size(), number, exchange->tuning());
  std::size_t bytes = 0;
  for (const std::size_t requested : bootstrap.all_gather_value("size of the exchange", exchange->needed_bytes())) {
    bytes = std::max(bytes, requested);
  }
  exchange->set_window_bytes(bytes);
  communicator.open_tenant(*exchange, "prepare the exchange");
  communicator.keep_tenant(ExchangeState::kFirstWindow, slot, exchange);
  return exchange;
}

ExchangeState& newest_exchange(const CommunicatorState& communicator) {
  ExchangeState* newest = nullptr;
  communicator.each_tenant(ExchangeState::kFirstWindow, [&](Tenant& tenant) {
    auto& exchange = static_cast<ExchangeState&>(tenant);
    if (newest == nullptr || exchange.number() > newest->number()) newest = &exchange;
  });
  return *newest;
}

void free_exchange(CommunicatorState& communicator, ExchangeState& exchange) {
  Bootstrap& bootstrap = communicator.bootstrap();
  Fabric& fabric = communicator.fabric();
  bootstrap.agree_on("free an exchange", [&] {
    if (communicator.released())
      throw Error(Errc::released, "MoeExchange::free: the communicator's memory is released");
  });
  agree_on_freeing(
      bootstrap,
      {.call = "MoeExchange::free", .made = "created", .number = exchange.number(), .freed = exchange.freed()});
  // Calls on the GPU's queues are made; new ones end at once. Kernels that have begun write to peers until they end, so
  // no rank's window may go before all kernels have ended.
  bootstrap.agree_on("free an exchange: finish its calls", [&] { fabric.finish_calls(); });
  exchange.set_freed();
  bootstrap.agree_on("free an exchange: end what comes now", [&] {
    exchange.set_released();
    fabric.finish_calls();
  });
  communicator.drop_tenant(ExchangeState::kFirstWindow, exchange.slot());
  bootstrap.agree_on("free an exchange: free its window", [&] { fabric.close_window(exchange.window()); });
}

}  // namespace weft::detail
