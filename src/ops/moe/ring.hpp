// Rows flow through a ring: a fixed number of places for each sender in every rank's window, whatever the number of
// tokens. The row of token t has place t mod ring_rows. A signal announces it, and the receiver's credit frees the
// place for the next row there, of token t + ring_rows at the earliest (wire/signal.hpp).
//
// Both sides deal tokens to their warps as they like, in ascending order. No cycle of waits can arise: a sender of a
// row waits for the receiver of the row before it in its place. A receiver of a row waits for its sender. So each wait
// in a chain is for a smaller token, or for the same one at its sender.
//
// Places have two banks, as slots have. A call needs no credits for its first ring_rows tokens: each rank that has
// begun this call has ended the call before, so it has read everything of the call before that.
//
// Rows between a rank and itself stay out of the ring if one launch sends and receives. In dispatch, blocks that send
// must be free to wait for counts. If the halves are called apart, the caller's tensors may change in between. Then
// these rows flow, too, as they do in rounds.
//
// A sender of such rows waits for all counts first. Control blocks send them without a wait.
#pragma once

#include <cstdint>

#include "ops/moe/moe_routing.hpp"
#include "protocol/flow.hpp"

namespace weft::detail {

// A signal tells how much of a token's row has come. In rounds its head comes first (ring_rounds.hpp).
enum class RowState : std::uint32_t { none, has_head, is_whole };

struct Ring {
  const Session* session;
  std::uint64_t rows;       // byte offset in the region: [bank][place][sender][row_packs]
  std::uint32_t row_packs;  // of a place
  bool carries_own;         // rows between this rank and itself flow, too

  WEFT_FN std::uint32_t places() const { return static_cast<std::uint32_t>(session->layout().pipeline_slots); }

  // Whether rows flow between this rank and `rank`, which need not exist.
  WEFT_FN bool reaches(std::uint32_t rank) const {
    return rank < session->size() && (carries_own || rank != session->rank());
  }
  // Ranks with which rows flow, and the one of them `turn` places on.
  WEFT_FN std::uint32_t partners() const { return session->size() - (carries_own ? 0 : 1); }
  WEFT_FN std::uint32_t partner(std::uint32_t turn) const {
    return rank_after(session->rank(), turn + (carries_own ? 0 : 1), session->size());
  }

  // The place of the row that `sender` sends to `owner` for a token.
  WEFT_FN Pack* row(std::uint32_t owner, std::uint32_t sender, std::uint32_t token) const {
    return reinterpret_cast<Pack*>(region_of(*session->call, owner) + rows) + banked(token, sender) * row_packs;
  }

  // Tells a receiver that the token's row is in place, or that the token has none there. By a lane whose own stores of
  // the row are done, or after sync_lanes() of the warp that has stored it.
  template <Team T>
  WEFT_FN void announce(T& team, std::uint32_t receiver, std::uint32_t token, RowState state) const {
    const std::uint64_t word = signal_of(token) + static_cast<std::uint32_t>(state);
    team.store_release(signal_at(receiver, session->rank(), token), word);
  }
  // Waits until a row of the token is known to be `least`, or not to come. By all lanes of a warp. False when the call
  // has failed.
  template <RowState least = RowState::is_whole, Team T>
  WEFT_FN bool await_row(T& team, std::uint32_t sender, std::uint32_t token, RowState& state) const {
    const std::uint64_t* const at = signal_at(session->rank(), sender, token);
    const auto arrived = [&] {
      const std::uint64_t word = team.load_acquire(at);
      state = static_cast<RowState>(word & 3);
      return team.all_lanes(signal_reached(word, signal_of(token)) && (state == RowState::none || state >= least));
    };
    return wait(team, *session, {.phase = 1, .warp = true}, arrived, [&] { return sender; });
  }
  // The same for the token's rows of several ranks, which all come if they flow. The lanes share the ranks: so
  // sync_lanes() must follow.
  template <Team T>
  WEFT_FN bool await_rows(T& team, std::uint32_t lane, const RankSet& senders, std::uint32_t token) const {
    for (std::uint32_t first = 0; first < session->size(); first += T::kLanes) {
      const std::uint32_t sender = first + lane;
      const bool has = reaches(sender) && senders.has(sender);
      bool own = false;
      const auto arrived = [&] {
        own = !has || signal_reached(team.load_acquire(signal_at(session->rank(), sender, token)), signal_of(token));
        return team.all_lanes(own);
      };
      const auto late = [&] { return own ? kNoPeer : sender; };
      if (!wait(team, *session, {.phase = 1, .warp = true}, arrived, late)) return false;
    }
    return true;
  }

  // Frees the token's place for a later row of the sender. By a lane that has awaited all copies of the row
  // to the stage, or that there is none.
  template <Team T>
  WEFT_FN void give_credit(T& team, std::uint32_t sender, std::uint32_t token) const {
    team.store_release(credit_at(sender, session->rank(), token), signal_of(token));
  }
  // Waits until all ranks that the ring reaches have freed the token's place. By all lanes of a warp, which share the
  // ranks: a barrier must follow before any of them stores the row. False when the call has failed.
  template <Team T>
  WEFT_FN bool await_places(T& team, std::uint32_t lane, std::uint32_t token) const {
    if (token < places()) return true;
    for (std::uint32_t first = 0; first < session->size(); first += T::kLanes) {
      if (!await_credit(team, first + lane, token - places())) return false;
    }
    return true;
  }
  // Waits until a receiver that the ring reaches has freed the place of an earlier token. Lanes may ask for different
  // receivers.
  template <Team T>
  WEFT_FN bool await_credit(T& team, std::uint32_t receiver, std::uint32_t token) const {
    const std::uint64_t* const at = credit_at(session->rank(), receiver, token);
    const std::uint64_t wanted = signal_of(token);
    const bool has = reaches(receiver);
    bool own = false;
    const auto freed = [&] {
      own = !has || signal_reached(team.load_acquire(at), wanted);
      return team.all_lanes(own);
    };
    return wait(team, *session, {.phase = 1, .warp = true}, freed, [&] { return own ? kNoPeer : receiver; });
  }

 private:
  WEFT_FN std::uint64_t index(std::uint32_t token, std::uint32_t from) const {
    return std::uint64_t{token & (places() - 1)} * session->size() + from;
  }
  WEFT_FN std::uint64_t banked(std::uint32_t token, std::uint32_t from) const {
    return std::uint64_t{session->epoch % kBanks} * places() * session->size() + index(token, from);
  }
  WEFT_FN std::uint64_t signal_of(std::uint32_t token) const { return signal_word(session->epoch, 4 * token); }
  WEFT_FN std::uint64_t* signal_at(std::uint32_t owner, std::uint32_t sender, std::uint32_t token) const {
    return words(owner, session->layout().pipeline_signals) + banked(token, sender);
  }
  // Without banks: credits of a rank only grow, and nothing but their sender reads them.
  WEFT_FN std::uint64_t* credit_at(std::uint32_t owner, std::uint32_t reader, std::uint32_t token) const {
    return words(owner, session->layout().pipeline_credits) + index(token, reader);
  }
  WEFT_FN std::uint64_t* words(std::uint32_t owner, std::uint64_t offset) const {
    return reinterpret_cast<std::uint64_t*>(region_of(*session->call, owner) + offset);
  }
};

// The part of a data block: on GPUs a warp group. It sends, or it receives, or it does both in turns. `index` is among
// the `count` of its kind.
struct RingRole {
  bool sends, receives;
  std::uint32_t index, count;
};
// `senders`: data blocks that only send; 0: all do both.
template <Team T>
WEFT_FN RingRole ring_role(T& team, std::uint32_t senders) {
  const std::uint32_t block = team.block_rank() - 1, blocks = team.blocks() - 1;
  if (senders == 0) return {.sends = true, .receives = true, .index = block, .count = blocks};
  if (block < senders) return {.sends = true, .receives = false, .index = block, .count = senders};
  return {.sends = false, .receives = true, .index = block - senders, .count = blocks - senders};
}

// Deals tokens to the warps of a role in batches: a batch is a token for each warp of all its blocks, in order.
struct RingBatches {
  std::uint32_t first;  // token of this block's first warp in batch 0
  std::uint32_t step;   // tokens of a batch
  std::uint32_t warp, lane;

  // The first token of this block in the first batch that begins at `token` or behind it.
  WEFT_FN std::uint32_t from(std::uint32_t token) const {
    return token <= first ? first : first + (token - first + step - 1) / step * step;
  }
};
template <Team T>
WEFT_FN RingBatches ring_batches(T& team, const RingRole& role) {
  const std::uint32_t warps = team.size() / T::kLanes;
  return {.first = role.index * warps,
          .step = role.count * warps,
          .warp = team.thread_rank() / T::kLanes,
          .lane = team.thread_rank() % T::kLanes};
}

template <class Frame>
struct RingPlan : Frame::ThreadPlan {
  RingRole role;
  RingBatches batches;
};
template <class Frame, Team T, class Work>
WEFT_FN RingPlan<Frame> ring_plan(T& team, const Call& call, const Work& work) {
  RingPlan<Frame> p{Frame::thread_plan(team, call, work), {}, {}};
  if (team.block_rank() == 0) return p;
  p.role = ring_role(team, work.senders);
  p.batches = ring_batches(team, p.role);
  return p;
}

}  // namespace weft::detail
