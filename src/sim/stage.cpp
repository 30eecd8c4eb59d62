// Stages of the machine's warps: their words, and the rules that order them.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "kernel/blocks.hpp"
#include "sim/copies.hpp"
#include "sim/machine.hpp"

namespace weft::sim {

Copies::Copies(Machine& machine)
    : machine_(machine), stages_(std::size_t{machine.threads_} * detail::kThreadBlocks), barriers_(machine.threads_) {
  static_assert(kMostLanes == Machine::kMostLanes);
}

void Copies::start_block(ThreadMask block) {
  for (ThreadMask rest = block; rest != 0; rest &= rest - 1) {
    const auto thread = static_cast<unsigned>(std::countr_zero(rest));
    barriers_[thread] = 1;
    for (unsigned i = 0; i < detail::kThreadBlocks; ++i) stage_of(thread, i).begun = 0;
  }
}

// A warp's own barrier, or its block's.
void Copies::synced(ThreadMask threads) {
  for (ThreadMask rest = threads; rest != 0; rest &= rest - 1) {
    const auto thread = static_cast<unsigned>(std::countr_zero(rest));
    if (machine_.lane_of(thread) == 0) ++barriers_[thread];
  }
}

// Shared memory goes to another block when a launch ends, so nothing may be under way. A store that no group has ended
// with was not awaited by end().
void Copies::leave_launch(unsigned thread) {
  for (unsigned i = 0; i < detail::kThreadBlocks; ++i) {
    const unsigned own = machine_.lane_of(thread);
    Stage& stage = stage_of(thread - own, i);
    if ((stage.begun >> own & 1u) == 0) continue;
    const Lane& lane = stage.lanes[own];
    for (unsigned place = 0; place < kPlaces; ++place) {
      if (awaits(lane, place)) broken(place, "is being loaded when its launch ends");
      if (lane.called[place] != stage.places[place].load.number) broken(place, "is loaded by other lanes only");
    }
    if (!lane.stores.empty()) broken(lane.stores.front().place, "is being stored when its launch ends");
    stage.begun &= ~(1u << own);
  }
}

Copies::Stage& Copies::stage(Spot spot) {
  if (spot.place >= kPlaces) broken(spot.place, "does not exist");
  Stage& stage = stage_of(first(), spot.block);
  if ((stage.begun >> lane() & 1u) == 0) broken(spot.place, "is used before begin_stage");
  return stage;
}

// The lanes meet, since one of them prepares the stage for all.
void Copies::begin(unsigned block) {
  Stage& stage = stage_of(first(), block);
  if ((stage.begun >> lane() & 1u) != 0) broken(0, "begins twice in a launch");
  if (stage.begun == 0) {
    for (Place& place : stage.places) place.clear();
    for (unsigned i = 0; i < machine_.lanes_; ++i) stage.lanes[i] = {};
  }
  stage.begun |= 1u << lane();
  machine_.ask_lanes({"begin_stage", machine_.lanes_}, 0);
}

void Copies::end(unsigned block) {
  const Lane& own = stage({block, 0}).lanes[lane()];
  for (unsigned place = 0; place < kPlaces; ++place) {
    if (awaits(own, place)) await_load({block, place});
  }
  await_stores(block, 0);
}

// The lane that begins a load may not have come to it yet.
void Copies::check_loaded(const Stage& stage, unsigned place, unsigned word, const char* act) {
  const Lane& own = stage.lanes[lane()];
  const Place& at = stage.places[place];
  if (at.words[word].load > own.awaited[place] || (awaits(own, place) && word < at.load.bytes / 4)) {
    broken(place, fmt::format("is {} before its load is awaited", act));
  }
}

void Copies::mark_read(Word& word) {
  if (word.read != now()) word.readers = 0;
  word.read = now();
  word.readers |= 1u << lane();
}

// Words that nobody has stored are poison: a warp may read a whole place and use a part of it.
void Copies::read(Spot spot, unsigned first_byte, void* to, unsigned bytes) {
  Stage& stage = this->stage(spot);
  if (first_byte + bytes > kBytes) broken(spot.place, "is read beyond its end");
  for (unsigned i = 0; i < bytes / 4; ++i) {
    Word& word = stage.places[spot.place].use(first_byte / 4 + i);
    check_loaded(stage, spot.place, first_byte / 4 + i, "read");
    if (word.writer != kNobody && word.writer != lane() && word.stored == now()) {
      broken(spot.place, "is read without a barrier behind the lane that has stored to it");
    }
    mark_read(word);
    std::memcpy(static_cast<std::byte*>(to) + std::size_t{i} * 4, &word.value, 4);
  }
}

void Copies::write(Spot spot, unsigned first_byte, const void* from, unsigned bytes) {
  Stage& stage = this->stage(spot);
  if (first_byte + bytes > kBytes) broken(spot.place, "is written beyond its end");
  for (unsigned i = 0; i < bytes / 4; ++i) {
    Word& word = stage.places[spot.place].use(first_byte / 4 + i);
    check_loaded(stage, spot.place, first_byte / 4 + i, "written");
    if (word.senders != 0) broken(spot.place, "is written while a store reads it");
    if (word.read == now() && (word.readers & ~(1u << lane())) != 0) {
      broken(spot.place, "is written without a barrier behind a lane that has read it");
    }
    if (word.writer != kNobody && word.writer != lane() && word.stored == now()) {
      broken(spot.place, "is written by two lanes without a barrier between");
    }
    word.writer = lane();
    word.stored = now();
    word.fenced = 0;
    std::memcpy(&word.value, static_cast<const std::byte*>(from) + std::size_t{i} * 4, 4);
  }
}

void Copies::fence_stage(unsigned block) {
  for (Place& place : stage({block, 0}).places) {
    for (Word& word : place.all_used()) {
      if (word.writer == lane() && word.fenced == 0) word.fenced = now();
    }
  }
}

void Copies::fence_bulk() {
  machine_.memory_.fence_proxy(machine_.current_);
  if (machine_.trace_ != nullptr) note("fence_bulk");
}

std::string Copies::missing() const {
  std::string text;
  for (unsigned i = 0; i < stages_.size(); ++i) {
    for (unsigned place = 0; place < kPlaces; ++place) {
      const Load& load = stages_[i].places[place].load;
      if (stages_[i].begun == 0 || load.phase != Phase::called || load.sleepers == 0) continue;
      text += fmt::format("{}thread {} awaits the load of place {}, which thread {} does not begin",
                          text.empty() ? "" : ", ", std::countr_zero(load.sleepers), place,
                          i / detail::kThreadBlocks + place % machine_.lanes_);
    }
  }
  return text;
}

void Copies::note(const std::string& what) const {
  machine_.trace_->push_back(machine_.names_[machine_.current_] + " " + what);
}

void Copies::broken(unsigned place, const std::string& rule) {
  machine_.fail(FailureKind::broken_rule,
                fmt::format("thread {}: place {} of its warp's stage {}", machine_.current_, place, rule));
}

}  // namespace weft::sim
