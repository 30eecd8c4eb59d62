// Turns of an exchange, as this rank's host knows them: handle slots, and sends that were not waited for.
//
// Dispatches and combines may come from a thread each, and each side reads the other's notes. A lock, held for a few
// words at a time, keeps the threads apart. Between a call's check and its note the lock is free: that state belongs to
// one side alone.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "ops/moe/exchange.hpp"
#include "weft/moe.hpp"

namespace weft::detail {

// A call whose first send was made and whose last wait was not.
struct SentCall {
  DispatchHandle handle;
  std::uint32_t fingerprint;
  Rounds rounds = {};  // its current one is the next that a dispatch waits for, or that a combine sends
  bool again = false;  // a dispatch that takes the routing of its handle
};

class InFlight {
 public:
  // `exchange`: as in its handles.
  InFlight(std::uint64_t exchange, std::uint32_t handles) : exchange_(exchange), eager_(handles) {}

  // Takes the next handle slot for this rank's `tokens`, and for `most_tokens` of any rank, if they are known.
  // `captured`: the call is kept and made later.
  DispatchHandle take_slot(std::uint32_t tokens, std::uint32_t most_tokens, bool captured);
  // Throws Errc::invalid_argument for a handle without a dispatch whose rows for experts below `end` have come. `name`:
  // of the argument.
  void check_handle(const char* name, DispatchHandle handle, bool captured, std::uint32_t end) const;

  // Sends of dispatch, or of combine, and their waits take turns.
  enum class Side : std::uint8_t { dispatch, combine };
  void check_nothing_sent(Side side) const;  // throws Errc::in_flight
  void note_sent(Side side, const SentCall& call);
  // Throw Errc::invalid_argument unless it was sent, and unless the round is the next one; or all rounds of a combine
  // were sent.
  SentCall sent(Side side, DispatchHandle handle, std::uint32_t round) const;
  SentCall all_sent(DispatchHandle handle) const;
  // The next round of a dispatch was waited for, or of a combine was sent.
  void note_round(Side side);
  void note_combined();
  // Voids all dispatches and sends.
  void forget();

 private:
  SentCall sent(Side side, DispatchHandle handle) const;
  const std::optional<SentCall>& of(Side side) const { return side == Side::dispatch ? dispatch_ : combine_; }
  std::optional<SentCall>& of(Side side) { return side == Side::dispatch ? dispatch_ : combine_; }

  mutable std::mutex mutex_;
  const std::uint64_t exchange_;
  std::uint64_t dispatches_ = 0, forgotten_ = 0;
  std::vector<std::uint64_t> eager_;  // by handle slot: number of the last dispatch that was not captured; 0: none
  std::optional<SentCall> dispatch_, combine_;
};

}  // namespace weft::detail
