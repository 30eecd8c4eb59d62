// Messages between ranks, all at once: a block moves chunks of one message, or of several in turns, and never waits for
// one of them while it can move another's (protocol/mail.hpp).
//
// Chunk c of a message takes slot c mod slots. The slots of a queue are dealt to lanes, and one block serves a lane: so
// all numbers of a slot have one writer in a launch. Both sides choose their lanes by themselves.
#pragma once

#include <cstdint>

#include "numeric/rows.hpp"
#include "ops/messages/messages_work.hpp"
#include "protocol/each_pack.hpp"
#include "protocol/mail.hpp"
#include "protocol/session.hpp"

namespace weft::detail {

struct MoveMessages : PrefetchesNothing {
  using Work = MessagesWork;
  static constexpr std::uint32_t kSize = 0;
  static constexpr int kPhases = 2;
  static constexpr int kMostThreads = 512;
  static constexpr BeginScope kBeginScope = BeginScope::block;  // its threads share what comes next

  struct ThreadPlan {};
  template <Team T>
  static WEFT_FN ThreadPlan thread_plan(T&, const Call&, const Work&) {
    return {};
  }

  template <int phase, Team T>
  static WEFT_FN bool run(T& team, const Session& s, const Work& work, const ThreadPlan&, const Prefetched&) {
    if (team.block_rank() == 0) return phase == 0 ? begin(team, s) : await_blocks(team, s);
    if constexpr (phase == 0) {
      if (!move_all(team, s, work)) return false;
      if (team.thread_rank() == 0) team.store(mail_done_word(*s.call, team.block_rank()), std::uint64_t{s.epoch} << 32);
    }
    return true;
  }

 private:
  // The part of a data block.
  template <Team T>
  static WEFT_FN bool move_all(T& team, const Session& s, const Work& work) {
    const Lanes lanes = lanes_of(team, s, work);
    for (std::uint32_t i = team.thread_rank(); i < lanes.mine; i += team.size())
      team.share(i, lanes.first(work, i).word());
    team.sync();
    for (std::uint32_t lane = 0;;) {
      bool good = true;
      if (team.thread_rank() == 0) {
        good = await_lane(team, s, work, lanes, lane);
        team.share(kNext, lane);
      }
      if (!team.all(good)) return false;
      lane = static_cast<std::uint32_t>(team.shared(kNext));
      if (lane == kNone) return true;
      move(team, s, work, lanes, lane);
    }
  }

  static constexpr std::uint32_t kNext = kMostMessages;  // word behind those of all lanes
  static_assert(kNext < kSharedWords);
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  static constexpr std::uint64_t kEnd = ~std::uint64_t{0};  // the word of a lane that is done
  static constexpr std::uint32_t kAtOnce = 4;               // packs

  // The place of a lane in its queue.
  struct Progress {
    std::uint32_t message;
    std::uint64_t chunk;

    WEFT_FN std::uint64_t word() const { return static_cast<std::uint64_t>(message) << 48 | chunk; }
    static WEFT_FN Progress of(std::uint64_t word) {
      return {static_cast<std::uint32_t>(word >> 48), word & ((std::uint64_t{1} << 48) - 1)};
    }
  };

  // Lanes of this launch: `each` of every queue. This block has number block, block + blocks, ….
  struct Lanes {
    std::uint32_t block, blocks, each, mine;

    WEFT_FN std::uint32_t number(std::uint32_t i) const { return block + i * blocks; }
    WEFT_FN std::uint32_t queue(std::uint32_t i) const { return number(i) / each; }
    WEFT_FN std::uint32_t first_chunk(std::uint32_t i) const { return number(i) % each; }
    WEFT_FN Progress first(const Work& work, std::uint32_t i) const { return {work.begin[queue(i)], first_chunk(i)}; }
  };
  template <Team T>
  static WEFT_FN Lanes lanes_of(T& team, const Session& s, const Work& work) {
    Lanes lanes{team.block_rank() - 1, team.blocks() - 1, 1, 0};
    while (2 * lanes.each * work.queues <= lanes.blocks && 2 * lanes.each <= s.layout().pipeline_slots) lanes.each *= 2;
    const std::uint32_t all = lanes.each * work.queues;
    if (lanes.block < all) lanes.mine = (all - lanes.block + lanes.blocks - 1) / lanes.blocks;
    return lanes;
  }

  // The control block. It tells faults that need no peer to be seen. It leaves last: as long as a data block is at
  // work, another call of this rank that begins finds the mail busy.
  template <Team T>
  static WEFT_FN bool begin(T& team, const Session& s) {
    bool good = true;
    if (team.thread_rank() == 0) good = alone(team, s, 0) && unpoisoned(team, id_of(s), team.load(s.call->poison), 0);
    return team.all(good);
  }
  template <Team T>
  static WEFT_FN bool await_blocks(T& team, const Session& s) {
    bool good = true;
    for (std::uint32_t block = 1 + team.thread_rank(); good && block < team.blocks(); block += team.size()) {
      const std::uint64_t* const done = mail_done_word(*s.call, block);
      good = wait(
          team, s, {.phase = 1, .control = true},
          [&] { return static_cast<std::uint32_t>(team.load(done) >> 32) == s.epoch; }, [] { return kNoPeer; });
    }
    return team.all(good);
  }

  static WEFT_FN bool is_send(const Work& work, std::uint32_t queue) { return queue < work.sends; }
  static WEFT_FN std::uint64_t packs_of(const Message& m) { return (m.bytes + sizeof(Pack) - 1) / sizeof(Pack); }
  // A message without bytes has a chunk, too: it is compared like others.
  static WEFT_FN std::uint64_t chunks_of(const Session& s, const Message& m) {
    const std::uint64_t each = s.layout().pipeline_packs, packs = packs_of(m);
    return packs == 0 ? 1 : (packs + each - 1) / each;
  }
  static WEFT_FN std::uint64_t* own_word(const Session& s, MailWord word, std::uint64_t slot, std::uint32_t peer) {
    return mail_word(*s.call, word, s.rank(), slot, peer);
  }
  template <Team T>
  static WEFT_FN std::uint32_t own_number(T& team, const Session& s, MailWord word, std::uint64_t slot,
                                          std::uint32_t peer) {
    return static_cast<std::uint32_t>(team.load(own_word(s, word, slot, peer)) >> 32);
  }

  // By the block's first thread: waits until a lane can go on, and sets `lane` to it, or to kNone if all are done. The
  // lane that went on last comes last.
  template <Team T>
  static WEFT_FN bool await_lane(T& team, const Session& s, const Work& work, const Lanes& lanes, std::uint32_t& lane) {
    const std::uint32_t last = lane;
    std::uint32_t late = kNoPeer, other = 0;  // a peer that a lane waits for, and the name that it has sent instead
    bool differs = false;
    const auto ready = [&] {
      late = kNoPeer;
      const int dead = team.dead_peer();
      bool waits = false;
      for (std::uint32_t turn = 1; turn <= lanes.mine; ++turn) {
        const std::uint32_t i = (last + turn) % lanes.mine;
        if (!has_chunk(team, s, work, lanes, i)) continue;
        const std::uint32_t queue = lanes.queue(i);
        const Message& m = work.message[Progress::of(team.shared(i)).message];
        std::uint32_t name = m.name;
        if (!goes_on(team, s, work, lanes, i, name)) {
          // A peer that is gone is named, else the first one.
          if (m.peer != s.rank() && (late == kNoPeer || static_cast<int>(m.peer) == dead)) late = m.peer;
          waits = true;
          continue;
        }
        differs = !is_send(work, queue) && name != m.name;
        if (differs) late = m.peer, other = name;
        lane = i;
        return true;
      }
      lane = kNone;
      return !waits;
    };
    if (!wait(team, s, {.phase = 0, .control = true}, ready, [&] { return late; })) return false;
    if (!differs) return true;
    report(team, id_of(s), {.code = Errc::mismatch, .peer = s.call->channel->member[late], .theirs = other});
    return false;
  }

  // Brings lane `i` to its next chunk, perhaps of the queue's next message. False if there is none.
  template <Team T>
  static WEFT_FN bool has_chunk(T& team, const Session& s, const Work& work, const Lanes& lanes, std::uint32_t i) {
    if (team.shared(i) == kEnd) return false;
    Progress at = Progress::of(team.shared(i));
    const std::uint32_t end = work.begin[lanes.queue(i) + 1];
    while (at.message < end && at.chunk >= chunks_of(s, work.message[at.message])) {
      at = {at.message + 1, lanes.first_chunk(i)};
    }
    team.share(i, at.message < end ? at.word() : kEnd);
    return at.message < end;
  }

  // Whether lane `i` has a free slot, or a chunk to take, whose message's `name` has come with it.
  template <Team T>
  static WEFT_FN bool goes_on(T& team, const Session& s, const Work& work, const Lanes& lanes, std::uint32_t i,
                              std::uint32_t& name) {
    const Progress at = Progress::of(team.shared(i));
    const std::uint32_t peer = work.message[at.message].peer;
    const std::uint64_t slot = at.chunk % s.layout().pipeline_slots;
    if (is_send(work, lanes.queue(i))) {
      const std::uint64_t credit = team.load_acquire(own_word(s, MailWord::credit, slot, peer));
      return epoch_reached(static_cast<std::uint32_t>(credit >> 32), own_number(team, s, MailWord::filled, slot, peer));
    }
    const std::uint64_t word = team.load_acquire(own_word(s, MailWord::arrived, slot, peer));
    name = static_cast<std::uint32_t>(word);
    return epoch_reached(static_cast<std::uint32_t>(word >> 32), own_number(team, s, MailWord::taken, slot, peer) + 1);
  }

  // Moves the next chunk of lane `i`.
  template <Team T>
  static WEFT_FN void move(T& team, const Session& s, const Work& work, const Lanes& lanes, std::uint32_t i) {
    const Progress at = Progress::of(team.shared(i));
    const Message& m = work.message[at.message];
    const bool sends = is_send(work, lanes.queue(i));
    const std::uint64_t each = s.layout().pipeline_packs, begin = at.chunk * each;
    const std::uint64_t slot = at.chunk % s.layout().pipeline_slots, left = packs_of(m) - begin;
    const std::uint32_t packs[] = {static_cast<std::uint32_t>(left < each ? left : each)};
    const Rows<false> rows(m.data, 1, m.bytes, m.bytes);
    if (sends) {
      Pack* const to = mail_slot(*s.call, m.peer, slot, s.rank());
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t k, Pack& p) { p = rows.get(begin + k); }, always,
          [&](std::uint32_t, std::uint32_t k, const Pack& p) { team.put(to + k, p); });
    } else {
      const Pack* const from = mail_slot(*s.call, s.rank(), slot, m.peer);
      each_pack<kAtOnce>(
          team, packs, [&](std::uint32_t, std::uint32_t k, Pack& p) { p = team.get(from + k); }, always,
          [&](std::uint32_t, std::uint32_t k, const Pack& p) { rows.put(begin + k, p); });
    }
    team.sync();
    if (team.thread_rank() != 0) return;
    const MailWord own = sends ? MailWord::filled : MailWord::taken;
    const std::uint32_t next = own_number(team, s, own, slot, m.peer) + 1;
    const std::uint64_t word = static_cast<std::uint64_t>(next) << 32 | m.name;
    team.store(own_word(s, own, slot, m.peer), word);
    team.store_release(mail_word(*s.call, sends ? MailWord::arrived : MailWord::credit, m.peer, slot, s.rank()), word);
    team.share(i, Progress{at.message, at.chunk + lanes.each}.word());
  }
};

}  // namespace weft::detail
