#include "ops/moe/exchange_turns.hpp"

#include "comm/call.hpp"

namespace weft::detail {
namespace {

const char* name(ExchangeTurns::Side side) {
  return side == ExchangeTurns::Side::dispatch ? "dispatch" : "combine";
}

}  // namespace

Ticket ExchangeTurns::take_generation(std::uint32_t tokens, bool captured) {
  const std::scoped_lock lock(mutex_);
  const std::uint64_t index = dispatches_++ % eager_.size();
  if (!captured) eager_[index] = dispatches_;
  return {.generation = static_cast<std::uint32_t>(index),
          .exchange = exchange_,
          .number = captured ? 0 : dispatches_,
          .tokens = tokens};
}

void ExchangeTurns::check_combine(Ticket ticket, bool captured) const {
  const std::scoped_lock lock(mutex_);
  const std::uint32_t generation = ticket.generation;
  require(ticket.exchange == exchange_ || ticket.exchange == 0, "ticket: another exchange has given it");
  require(
      ticket.exchange != 0 && generation < dispatches_ && generation < eager_.size() && ticket.number <= dispatches_,
      "ticket: no dispatch has given it");
  // The host does not see the order of calls in graphs.
  const bool known = ticket.number != 0 && !captured;
  require(!known || ticket.number > forgotten_, "ticket: what was dispatched before release() is void");
  require(!known || ticket.number == eager_[generation], "ticket: a later dispatch has taken its generation");
  require(!dispatch_ || dispatch_->ticket.generation != generation, "ticket: its dispatch has not been waited for");
}

void ExchangeTurns::check_nothing_sent(Side side) const {
  const std::scoped_lock lock(mutex_);
  if (!of(side)) return;
  throw Error(Errc::in_flight, fmt::format("{0}: the {0} before has been sent and not been waited for", name(side)));
}

void ExchangeTurns::note_sent(Side side, const SentCall& call) {
  const std::scoped_lock lock(mutex_);
  of(side) = call;
}

SentCall ExchangeTurns::sent(Side side, Ticket ticket) const {
  const std::scoped_lock lock(mutex_);
  require(of(side).has_value(), "{}_wait: nothing was sent", name(side));
  require(of(side)->ticket == ticket, "{0}_wait: ticket: its {0} is not the one that was sent", name(side));
  return *of(side);
}

void ExchangeTurns::note_waited(Side side) {
  const std::scoped_lock lock(mutex_);
  of(side).reset();
}

void ExchangeTurns::forget() {
  const std::scoped_lock lock(mutex_);
  forgotten_ = dispatches_;
  dispatch_.reset();
  combine_.reset();
}

}  // namespace weft::detail
