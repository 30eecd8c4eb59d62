// Checks at the end of an execution.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "sim/all_reduce.hpp"
#include "weft/error.hpp"

namespace weft::sim {

std::string AllReduceProgram::wrong_result(unsigned call, unsigned rank) {
  const Tensors& t = tensors(call, rank);
  const Tensors& shared = tensors(recorded(call), rank);
  const std::vector<std::uint32_t>& got = shared.user == call ? shared.memory : t.result;
  if (got == t.expected) return {};
  if (got.empty()) return fmt::format("call {} on rank {} did not begin", call, rank);
  std::size_t word = 0;
  while (got[word] == t.expected[word]) ++word;
  const long from_output = static_cast<long>(word) - static_cast<long>(t.output_offset / 4);
  return fmt::format("call {} on rank {}: word {} of the result is {:08x}, not {:08x}", call, rank, from_output,
                     got[word], t.expected[word]);
}

std::string AllReduceProgram::check() {
  if (!host_saw_.empty()) return host_saw_;
  for (unsigned rank = 0; rank < setup_.ranks; ++rank) read_symmetric(rank, {});
  if (setup_.faults.unordered_rank >= 0) return check_unordered();
  if (setup_.faults.any() && !setup_.faults.harmless) return check_faults();
  for (unsigned call = 0; call < setup_.calls.size(); ++call) {
    for (const unsigned rank : world_.groups()[setup_.calls[call].group]) {
      if (!world_.takes_part(call, rank) || setup_.calls[call].act != Act::call) continue;
      const std::string wrong = wrong_result(call, rank);
      if (wrong.empty()) continue;
      const std::string state = world_.check_rest(machine_->memory());
      return state.empty() ? wrong : fmt::format("{}; {}", wrong, state);
    }
  }
  return world_.check_rest(machine_->memory());
}

// The call that a record names.
unsigned AllReduceProgram::failed_call(unsigned rank, const detail::FaultRecord& record) const {
  std::vector<std::uint32_t> epochs(world_.groups().size(),
                                    setup_.start_epoch + (setup_.faults.ahead_rank == static_cast<int>(rank) ? 2 : 0));
  for (unsigned call = 0; call < setup_.calls.size(); ++call) {
    const unsigned group = setup_.calls[call].group;
    if (!setup_.calls[call].begins_epoch() || world_.stale(call)) continue;
    if (record.channel == group && record.epoch_wanted == epochs[group]++) return call;
  }
  return static_cast<unsigned>(setup_.calls.size());
}

// The codes that a rank without blame may report.
bool AllReduceProgram::may_say(Errc code) const {
  const Faults& faults = setup_.faults;
  if (code == Errc::peer_failed) return true;  // the rank that told it must know more
  if (faults.in_flight) return code == Errc::in_flight;
  if (faults.lacks_room()) return false;
  if (faults.odd_rank >= 0 || faults.ahead_rank >= 0) return code == Errc::mismatch;
  if (faults.aborting_rank >= 0) return code == Errc::aborted;
  return code == (setup_.deadline_ns == 0 ? Errc::peer_died : Errc::timeout);
}

// Whether the rank that stopped had sent everything for a call and for the calls before it.
bool AllReduceProgram::had_sent_all_for(unsigned call) const {
  std::uint64_t needed = call < needed_.size() ? needed_[call] : kUnknown;
  for (unsigned later = call + 1; later < needed_.size(); ++later) {
    const CallSetup& spec = setup_.calls[later];
    if (spec.is_later() && spec.of == static_cast<int>(call)) needed = std::max(needed, needed_[later]);
  }
  return machine_->dead_or_stopped() && setup_.faults.aborting_rank < 0 && machine_->sent_before_stop() >= needed;
}

// A rank that a peer told must blame the same rank as that peer, which must have seen the fault itself; or the peer, if
// the peer blames no other.
bool AllReduceProgram::repeats_its_reporter(unsigned rank, const detail::FaultRecord& record) {
  if (record.reporter >= setup_.ranks || record.reporter == rank) return false;
  const auto theirs = world_.fault(machine_->memory(), record.reporter);
  if (!theirs || theirs->reporter != detail::kNoPeer || theirs->code != record.theirs) return false;
  return record.peer == (theirs->peer == detail::kNoPeer ? record.reporter : theirs->peer);
}

// A ragged tensor without room stays untouched. A dispatch without room writes at most the rows that fit.
std::string AllReduceProgram::written_without_room(unsigned call, unsigned rank) {
  const Tensors& t = tensors(call, rank);
  const auto initial = std::as_bytes(std::span(t.initial)), expected = std::as_bytes(std::span(t.expected)),
             got = std::as_bytes(std::span(t.memory));
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == initial[i] || (setup_.faults.overflow && got[i] == expected[i])) continue;
    return fmt::format("rank {} has no room in call {}, and has written to byte {} of its output", rank, call,
                       static_cast<long>(i) - static_cast<long>(t.output_offset));
  }
  return {};
}

// A rank has done all of its calls right, or it names a failed call and a rank to blame. Its calls before that one were
// right.
std::string AllReduceProgram::check_faults() {
  const Faults& faults = setup_.faults;
  Memory& memory = machine_->memory();
  const auto last = static_cast<unsigned>(setup_.calls.size()) - 1;
  const int culprit = faults.aborting_rank >= 0 ? faults.aborting_rank
                                                : std::max({faults.odd_rank, faults.ahead_rank, faults.stopping_rank});
  bool all_right = true;
  for (unsigned rank = 0; rank < setup_.ranks; ++rank) {
    if (faults.stopping_rank == static_cast<int>(rank) && machine_->dead_or_stopped()) continue;
    const auto record = world_.fault(memory, rank);
    all_right = all_right && !record;
    const auto end = record ? failed_call(rank, *record) : static_cast<unsigned>(setup_.calls.size());
    for (unsigned call = 0; call < end; ++call) {
      if (!world_.takes_part(call, rank) || setup_.calls[call].act != Act::call) continue;
      // A call on its own stream may have been under way when the other one's failed.
      const bool beside = record && setup_.side_by_side && setup_.calls[call].group != setup_.calls[end].group &&
                          static_cast<int>(call) > setup_.calls[end].after;
      if (beside) continue;
      const std::string wrong = wrong_result(call, rank);
      if (!wrong.empty())
        return wrong + (record ? " (and the record blames a later call)" : " (and no fault is recorded)");
    }
    const bool must_fail = faults.odd_rank >= 0 || faults.ahead_rank >= 0 || faults.in_flight;
    const bool may_go_on = faults.rejects && static_cast<int>(rank) == culprit;
    if (!record && must_fail && !may_go_on) return fmt::format("rank {} believes that all went well", rank);
    if (!record) continue;
    const auto code = static_cast<Errc>(record->code);
    const bool blames_culprit = static_cast<int>(record->peer) == culprit;
    // A rank that a peer tells may be in an earlier call than the one that failed there.
    if (had_sent_all_for(code == Errc::peer_failed ? last : end)) {
      return fmt::format("rank {} says \"{}\" of rank {} in call {}, for which nothing of rank {}'s was missing", rank,
                         name(code), record->peer, end, culprit);
    }
    const bool is_culprit = static_cast<int>(rank) == culprit;
    if (code == Errc::in_flight && end != faults.odd_call) {
      return fmt::format("rank {} says \"{}\" in call {}, not in call {}", rank, name(code), end, faults.odd_call);
    }
    if (is_culprit && faults.lacks_room()) {
      if (code != (faults.overflow ? Errc::overflow : Errc::capacity) || end != faults.odd_call) {
        return fmt::format("rank {} says \"{}\" in call {}, and had no room in call {}", rank, name(code), end,
                           faults.odd_call);
      }
      if (const std::string stray = written_without_room(end, rank); !stray.empty()) return stray;
    }
    // A wait may outlast the deadline because its peer itself waits, in this call or the one before.
    const bool another = record->peer < setup_.ranks && record->peer != rank;
    const auto theirs = another ? world_.fault(memory, record->peer) : std::nullopt;
    const bool waits_too = code == Errc::timeout && theirs && failed_call(record->peer, *theirs) <= end;
    const bool told = code == Errc::peer_failed && repeats_its_reporter(rank, *record);
    if (code == Errc::peer_failed && !told) {
      return fmt::format("rank {} was told by rank {} that rank {} is to blame, which rank {} does not say itself",
                         rank, record->reporter, record->peer, record->reporter);
    }
    if (!is_culprit && !may_say(code)) return fmt::format("rank {} says \"{}\"", rank, name(code));
    if (!blames_culprit && !told && !is_culprit && !waits_too) {
      return fmt::format("rank {} says \"{}\" of rank {}; rank {} was to blame", rank, name(code), record->peer,
                         culprit);
    }
  }
  // No rank writes to a rank that makes another call.
  if (faults.odd_rank >= 0 && faults.odd_call == 0 &&
      world_.stores_to_symmetric(memory, static_cast<unsigned>(culprit)) != 0) {
    return fmt::format("somebody wrote to the outputs of rank {}, which had not asked for it", culprit);
  }
  if (const std::string late = check_waits(); !late.empty()) return late;
  return all_right && !machine_->dead_or_stopped() ? world_.check_rest(memory) : "";
}

// The clock moves without a step only while no thread can go on. The limit runs from a rank's stop until the others
// have left their calls: a data block's longest wait, and a few turns. Every second turn looks at the clock, at poison
// and for the dead; a death takes two looks. A turn comes round when the clock has moved.
std::string AllReduceProgram::check_waits() const {
  constexpr std::uint64_t kTurns = 8;
  const Faults& faults = setup_.faults;
  const bool by_deadline = faults.stopping_rank >= 0 && setup_.deadline_ns != 0;
  const std::uint64_t wait = by_deadline ? setup_.deadline_ns + setup_.deadline_ns / 4 : 0;
  const std::uint64_t before = machine_->idled_before_stop();
  for (unsigned rank = 0; rank < setup_.ranks; ++rank) {
    const bool stops = faults.stopping_rank == static_cast<int>(rank);
    if (stops && machine_->dead_or_stopped()) continue;
    const std::uint64_t longest = stops ? faults.until : wait;  // a sleeping rank finds that all is over
    if (idled_[rank] <= before + longest + kTurns * World::kIdleNs) continue;
    return fmt::format("rank {} has waited for {} ns, with a deadline of {} ns", rank, idled_[rank] - before,
                       setup_.deadline_ns);
  }
  return {};
}

// Calls of one rank that nothing orders: either all went well, or the communicator has ended.
std::string AllReduceProgram::check_unordered() {
  const auto culprit = static_cast<unsigned>(setup_.faults.unordered_rank);
  bool ended = false;
  for (unsigned rank = 0; rank < setup_.ranks; ++rank) {
    const auto record = world_.fault(machine_->memory(), rank);
    ended = ended || record;
    if (!setup_.faults.overlaps) continue;
    if (!record) return fmt::format("rank {} has not noticed that calls overlap", rank);
    const Errc wanted = rank == culprit ? Errc::overlap : Errc::peer_failed;
    const auto code = static_cast<Errc>(record->code);
    if (code != wanted || record->peer != (rank == culprit ? detail::kNoPeer : culprit)) {
      return fmt::format("rank {} says \"{}\" of rank {}, not \"{}\"", rank, name(code), static_cast<int>(record->peer),
                         name(wanted));
    }
  }
  if (ended) return {};
  for (unsigned call = 0; call < setup_.calls.size(); ++call) {
    for (unsigned rank = 0; rank < setup_.ranks; ++rank) {
      if (const std::string wrong = wrong_result(call, rank); !wrong.empty()) {
        return wrong + ", and nobody has noticed that calls overlap";
      }
    }
  }
  return {};
}

}  // namespace weft::sim
