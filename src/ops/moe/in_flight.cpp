#include "ops/moe/in_flight.hpp"

#include "comm/call.hpp"

namespace weft::detail {
namespace {

const char* name(InFlight::Side side) {
  return side == InFlight::Side::dispatch ? "dispatch" : "combine";
}

}  // namespace

DispatchHandle InFlight::take_slot(std::uint32_t tokens, std::uint32_t most_tokens, bool captured) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t index = dispatches_++ % eager_.size();
  if (!captured) eager_[index] = dispatches_;
  return {.slot = static_cast<std::uint32_t>(index),
          .exchange = exchange_,
          .number = captured ? 0 : dispatches_,
          .tokens = tokens,
          .most_tokens = most_tokens};
}

void InFlight::check_handle(const char* name, DispatchHandle handle, bool captured, std::uint32_t end) const {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t handle_slot = handle.slot;
  require(handle.exchange == exchange_ || handle.exchange == 0, "{}: another exchange has given it", name);
  require(
      handle.exchange != 0 && handle_slot < dispatches_ && handle_slot < eager_.size() && handle.number <= dispatches_,
      "{}: no dispatch has given it", name);
  // The host does not see the order of calls in graphs.
  const bool known = handle.number != 0 && !captured;
  require(!known || handle.number > forgotten_, "{}: what was dispatched before release() is void", name);
  require(!known || handle.number == eager_[handle_slot], "{}: a later dispatch has taken its slot", name);
  if (!dispatch_ || dispatch_->handle.slot != handle_slot) return;
  const Rounds& rounds = dispatch_->rounds;
  require(rounds.current != 0, "{}: its dispatch has not been waited for", name);
  require(end <= rounds.experts(rounds.current - 1).end,
          "{}: its dispatch has not been waited for: round {} of 0 to {} comes next", name, rounds.current,
          rounds.count - 1);
}

void InFlight::check_nothing_sent(Side side) const {
  const std::scoped_lock lock(mutex_);
  if (!of(side)) return;
  throw Error(Errc::in_flight, fmt::format("{0}: the {0} before has been sent and not been waited for", name(side)));
}

void InFlight::note_sent(Side side, const SentCall& call) {
  const std::scoped_lock lock(mutex_);
  of(side) = call;
}

SentCall InFlight::sent(Side side, DispatchHandle handle) const {
  const std::scoped_lock lock(mutex_);
  require(of(side).has_value(), "{}_wait: nothing was sent", name(side));
  require(of(side)->handle == handle, "{0}_wait: handle: its {0} is not the one that was sent", name(side));
  return *of(side);
}

SentCall InFlight::sent(Side side, DispatchHandle handle, std::uint32_t round) const {
  const SentCall call = sent(side, handle);
  require(round == call.rounds.current, "round: {} is out of turn: round {} of 0 to {} comes next", round,
          call.rounds.current, call.rounds.count - 1);
  return call;
}

SentCall InFlight::all_sent(DispatchHandle handle) const {
  const SentCall call = sent(Side::combine, handle);
  require(call.rounds.current == call.rounds.count, "combine_wait: round {} of 0 to {} has not been sent",
          call.rounds.current, call.rounds.count - 1);
  return call;
}

void InFlight::note_round(Side side) {
  const std::scoped_lock lock(mutex_);
  Rounds& rounds = of(side)->rounds;
  ++rounds.current;
  if (side == Side::dispatch && rounds.current == rounds.count) dispatch_.reset();
}

void InFlight::note_combined() {
  const std::scoped_lock lock(mutex_);
  combine_.reset();
}

void InFlight::forget() {
  const std::scoped_lock lock(mutex_);
  forgotten_ = dispatches_;
  dispatch_.reset();
  combine_.reset();
}

}  // namespace weft::detail
