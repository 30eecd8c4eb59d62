// Dispatch: every rank sends its routing to every rank, and each token once to each rank that holds one of its experts.
// Receivers compute the places of rows, in (source rank, token) order, from the sources' counts.
#pragma once

#include <cstdint>

#include "ops/moe/moe_receive.hpp"
#include "ops/moe/moe_send.hpp"
#include "ops/moe/moe_tally.hpp"

namespace weft::detail {

// The part of dispatch's control block that does not depend on how rows travel.
struct DispatchControl : MoeFrame<DispatchWork> {
  using Frame = MoeFrame<DispatchWork>;

  // The send has the first turn, and each round a turn of its own behind it.
  static WEFT_FN Turn turn(const Work& work) {
    if (!work.phases.has(1)) return {kIdle, 1};
    if (work.phases.has(0)) return {kIdle, kIdle};
    const std::uint32_t own = 1 + work.rounds.current;
    return {own, work.rounds.current + 1 == work.rounds.count ? kIdle : own + 1};
  }

  // The handle slot's state, for the first thread of the control block.
  template <Team T>
  static WEFT_FN std::uint32_t read_waiting(T& team, const Work& work) {
    const bool reads = work.phases.has(0) && is_there(work) && team.block_rank() == 0 && team.thread_rank() == 0;
    return reads ? work.exchange.tables.header->waiting : 0;
  }

  static WEFT_FN DispatchArea area(const Session& s, const Work& work, std::uint32_t owner, std::uint32_t sender) {
    return DispatchArea::of(s, work.exchange, owner, sender);
  }

  // The number that every rank gets from this one: how many tokens it has. Made again, a dispatch tells the epoch of
  // the one whose routing it takes (ops/moe/ring_again.hpp).
  template <bool again>
  static WEFT_FN std::uint32_t told(const Work& work) {
    if constexpr (again) return work.exchange.tables.header->origin;
    return work.tokens;
  }
  // Takes the handle slot, and tells every rank that number. False when the call has failed.
  template <bool again = false, Team T>
  static WEFT_FN bool begin(T& team, const Session& s, const Work& work, const HeaderAddress& header,
                            std::uint32_t waiting) {
    // A warp goes on or stops as one.
    const bool taken = waiting == 1 && !work.discard;
    if (taken) report(team, id_of(s), {.code = Errc::in_flight});
    if (!team.all_lanes(!taken)) return false;
    Handshake::send(team, s, header);
    for (std::uint32_t rank = team.thread_rank(); rank < s.size(); rank += team.size()) {
      team.store(area(s, work, rank, s.rank()).tokens(), FlaggedWord::encode(told<again>(work), s.epoch));
    }
    return true;
  }

  // Records are not put back to rest. Every call, also by a ring, writes those of one token that it does not send, in
  // turn. So none is older than a round of the slots, and none can be taken for one of a later round of the epochs.
  // `sent`, `slots`: tokens whose records this call sends, and that have any.
  template <Team T>
  static WEFT_FN void renew_record(T& team, const Session& s, const Work& work, std::uint32_t sent,
                                   std::uint32_t slots) {
    const ExchangeShape& shape = work.exchange.shape;
    const std::uint32_t token = s.epoch / kBanks % slots;
    if (token < sent) return;
    for (std::uint32_t i = team.thread_rank(); i < s.size() * shape.top_k; i += team.size()) {
      Pack* const record = area(s, work, i / shape.top_k, s.rank()).records_among(slots, token) + i % shape.top_k;
      team.store(record, Line::encode<T::kAtomicBytes>({{kNone, 0, 0, 0}}, s.epoch));
    }
  }

  template <Team T>
  static WEFT_FN bool control_receive(T& team, const Session& s, const Work& work, const HeaderAddress& header) {
    if (!team.all_lanes(Frame::compare(team, s, header, work.source_wait_ns))) return false;
    if (team.thread_rank() < T::kLanes && !tell_tokens(team, s, work)) return false;
    if (!tell_counts(team, s, work)) return false;
    if (team.thread_rank() == 0) work.exchange.tables.header->waiting = 1;
    return true;
  }
};

// `in_rounds`: it can be made in rounds. `tallies`: blocks count entries in tallies, which serves many tokens. Others
// need fewer instructions.
template <class Row, bool in_rounds = false, bool tallies = false>
struct MoeDispatch : DispatchControl {
  using Send = MoeSend<Row, in_rounds, tallies>;
  using Receive = MoeReceive<Row, in_rounds, tallies>;
  static constexpr BeginScope kBeginScope = tallies ? BeginScope::block : BeginScope::warp;

  struct ThreadPlan : Frame::ThreadPlan {
    typename Send::Plan plan;
    typename Send::Units sends;  // of this warp; `share` is for receiving
    typename Send::Unit sent;    // the first one
    typename Receive::Plan receive_plan;
    typename Receive::Unit received;
    std::uint32_t second_token;  // of the next one
  };
  // Divisions take long; here the kernel before still runs.
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T& team, const Call& call, const Work& work) {
    ThreadPlan p{Frame::thread_plan(team, call, work), {}, {}, {}, {}, {}, 0};
    if (team.block_rank() == 0) return p;
    // Neighbouring units are alike. They go to different blocks, so that no processor gets all units of one kind.
    const std::uint32_t warps = team.size() / T::kLanes, senders = senders_of(team, work.senders);
    p.share = share_among(team, senders, warps - senders);
    const WarpShare rows = senders != 0 ? share_among(team, 0, senders) : p.share;
    p.plan = Send::template plan<T>(work, rows.step, senders != 0);
    p.sends = Send::units(p.plan, p.share, rows, senders != 0);
    p.sent = Send::template unit<T>(p.plan, p.sends.first);
    p.receive_plan = Receive::template plan<T>(call, work, p.share);
    p.received = Receive::unit(call, p.receive_plan, p.share.first);
    p.second_token = Receive::unit(call, p.receive_plan, p.share.first + p.share.step).token;
    settle_both(team, p.sent.token, p.sent.part);
    settle_both(team, p.received.token, p.received.part);
    settle_both(team, p.received.sender, p.second_token);
    return p;
  }
  template <Team T>
  static WEFT_FN void settle_both(T& team, std::uint32_t& a, std::uint32_t& b) {
    std::uint64_t both = static_cast<std::uint64_t>(a) << 32 | b;
    team.settle(both);
    a = static_cast<std::uint32_t>(both >> 32), b = static_cast<std::uint32_t>(both);
  }

  // Read before the first store, beside the words of enter(): the handle slot's state, and the first unit's input.
  template <class T>
  struct Prefetched {
    std::uint32_t waiting;  // first thread of the control block
    typename Send::template Loaded<T> loaded;
  };
  template <Team T>
  static WEFT_FN Prefetched<T> prefetch(T& team, const Session& s, const Work& work, const ThreadPlan& p) {
    Prefetched<T> prefetched{};
    if (!work.phases.has(0) || !is_there(work)) return prefetched;
    if (team.block_rank() == 0) {
      prefetched.waiting = read_waiting(team, work);
    } else {
      prefetched.loaded = Send::template load<T>(work, s.rank(), p.plan, p.sent, p.sends, p.share.lane);
    }
    return prefetched;
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan& p,
                          const Prefetched<T>& prefetched) {
    if constexpr (phase == 0) {
      if (team.block_rank() == 0) return control_send(team, s, work, p.header, prefetched.waiting);
      if constexpr (tallies) send_records(team, s, work);
      Send::send(team, s, work, p.plan, p.sent, p.sends, p.share.lane, prefetched.loaded);
      return true;
    } else {
      if (team.block_rank() == 0) {
        if (in_rounds && work.rounds.current != 0) return Frame::compare(team, s, p.header, nullptr);
        return control_receive(team, s, work, p.header);
      }
      return Receive::receive(team, s, work, p.share, p.received, p.second_token, p.receive_plan);
    }
  }

  template <Team T>
  static WEFT_FN bool control_send(T& team, const Session& s, const Work& work, const HeaderAddress& header,
                                   std::uint32_t waiting) {
    const bool began = begin(team, s, work, header, waiting);
    if (!(tallies ? team.all(began) : began)) return false;
    renew_record(team, s, work, work.tokens, work.exchange.shape.tokens);
    if constexpr (tallies) send_all_counts(team, s, work);
    return true;
  }
};

}  // namespace weft::detail
