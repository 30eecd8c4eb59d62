// The state behind a MoeExchange: a window of its own. It has the regions of dispatch and of combine, each a channel
// like a group's, then the tables of every handle slot. Its slot among the communicator's exchanges gives window and
// channels, until it is freed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/state.hpp"
#include "comm/tenant.hpp"
#include "ops/moe/exchange_choice.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "ops/moe/in_flight.hpp"

namespace weft::detail {

// Throws Errc::invalid_argument with the argument's name.
void check_exchange_args(std::uint32_t ranks, const MoeExchangeArgs& args);
void check_exchange(const GroupState& group, const MoeExchangeArgs& args);
// A map of `experts`, or several one behind the other, with `size` places in each. `name`: of the argument.
void check_experts_of_rank(const char* name, std::size_t size, std::uint32_t experts,
                           std::span<const std::int32_t> maps);
// Collective over the world; throws on all ranks if the ranks of one group differ.
void agree_on_exchange(Bootstrap& bootstrap, const GroupState& group, const MoeExchangeArgs& args);

class ExchangeState final : public Tenant {
 public:
  static constexpr int kFirstWindow = 1;  // of slot 0

  // `number`: among all exchanges that the communicator has ever made.
  ExchangeState(GroupState& group, const MoeExchangeArgs& args, int slot, std::uint64_t number);

  int slot() const { return slot_; }
  std::uint64_t number() const { return number_; }
  int window() const override { return kFirstWindow + slot_; }
  bool freed() const { return freed_; }
  void set_freed() { freed_ = true; }

  const MoeExchangeArgs& args() const { return args_; }
  const ExchangeShape& shape() const { return shape_; }
  // Whether rows of a call flow through the ring. `most_tokens`: as in DispatchArgs.
  bool takes_ring(std::uint32_t most_tokens) const {
    return shape_.ring_rows != 0 && (most_tokens == 0 || most_tokens > most_by_slots_);
  }
  const std::vector<ExchangeStep>& steps() const { return tuning_.steps; }
  const std::string& tuning() const { return tuning_.reason; }  // empty: there is no table for it
  // Of `weft tune`, on an exchange of RowPath::ring with slots for the step's tokens: calls go as this step says.
  void try_step(const ExchangeStep& step);
  std::span<const std::uint32_t> experts(std::uint32_t map) const {
    return std::span(experts_).subspan(std::size_t{map} * shape_.local, shape_.local);
  }
  // Local: from now on dispatches behind `stream` take these maps, which have been checked. If it throws, the old ones.
  void set_experts(std::span<const std::int32_t> experts_of_rank, std::uint32_t first_map, Stream stream);
  GroupState& dispatch_channel() { return dispatch_; }
  GroupState& combine_channel() { return combine_; }
  const GroupState& dispatch_channel() const { return dispatch_; }
  const GroupState& combine_channel() const { return combine_; }

  std::size_t needed_bytes() const;
  std::size_t window_bytes() const override { return window_bytes_; }
  void set_window_bytes(std::size_t bytes) { window_bytes_ = bytes; }
  void arm(std::optional<std::uint32_t> first_epoch, bool moved) override;
  void set_released() override;
  std::vector<const GroupState*> channels() const override { return {&dispatch_, &combine_}; }

  InFlight& in_flight() { return in_flight_; }
  const InFlight& in_flight() const { return in_flight_; }

  ExchangeView view(std::uint32_t handle_slot, bool ring, std::uint32_t map = 0) const;
  LateWeights late_weights(const float* given, const DispatchHandle& handle) const;
  // This rank's word that is 1 once a dispatch has failed here.
  const detail::BlockWord* dispatch_admitted() const { return dispatch_.call(0).local->admitted; }

 private:
  std::size_t tables_offset() const { return layout_.dispatch_bytes + layout_.combine_bytes; }
  std::size_t tables_bytes() const;
  std::byte* memory() const;
  std::byte* map_memory(std::uint32_t map) const;
  RoutingHeader* headers() const;  // by handle slot
  void number_experts(std::uint32_t map);

  GroupState& group_;
  int slot_;
  std::uint64_t number_;
  bool freed_ = false;
  MoeExchangeArgs args_;
  std::vector<ExpertMap> maps_;
  ExchangeTuning tuning_;
  ExchangeShape shape_;
  ExchangeLayout layout_;
  std::vector<std::uint32_t> experts_;  // [maps, local]
  std::uint32_t most_by_slots_;         // tokens of a call that takes slots beside a ring
  std::size_t window_bytes_ = 0;
  GroupState dispatch_, combine_;
  InFlight in_flight_;
};

// Both are collective over the world: every rank makes, or frees, an exchange on a group that it names itself.
std::shared_ptr<ExchangeState> make_exchange(GroupState& group, const MoeExchangeArgs& args);
void free_exchange(CommunicatorState& communicator, ExchangeState& exchange);
// The exchange that was made last, of those that were not freed; there must be one.
ExchangeState& newest_exchange(const CommunicatorState& communicator);

}  // namespace weft::detail
