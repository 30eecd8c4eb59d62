#include "sim/copies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "sim/machine.hpp"

namespace weft::sim {

void Copies::check_copy(unsigned place, const void* memory, unsigned bytes) {
  if (bytes == 0 || bytes % sizeof(Pack) != 0 || bytes > kBytes) {
    broken(place, fmt::format("is copied with {} bytes", bytes));
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % sizeof(Pack) != 0) {
    broken(place, "is copied to or from an address that 16 does not divide");
  }
}

void Copies::load(Spot spot, const void* from, unsigned bytes, int unit) {
  Stage& stage = this->stage(spot);
  check_copy(spot.place, from, bytes);
  Place& place = stage.places[spot.place];
  Lane& own = stage.lanes[lane()];
  if (own.called[spot.place] == place.load.number) {  // this lane is the first one to call it
    if (stage.begun != (1u << machine_.lanes_) - 1) broken(spot.place, "is loaded when a lane has left its launch");
    for (LaneMask rest = stage.begun; rest != 0; rest &= rest - 1) {
      const auto i = static_cast<unsigned>(std::countr_zero(rest));
      if (stage.lanes[i].awaited[spot.place] == place.load.number) continue;
      broken(spot.place, fmt::format("is loaded again before lane {} has awaited the load before", i));
    }
    const unsigned number = place.load.number + 1;
    place.load = {number, static_cast<const std::byte*>(from), bytes, unit, Phase::called, 0};
  } else if (place.load.from != from || place.load.bytes != bytes) {
    broken(spot.place, "is loaded with other arguments than another lane's");
  }
  own.called[spot.place] = place.load.number;
  if (lane() == spot.place % machine_.lanes_) issue(place, spot.place);
}

void Copies::issue(Place& place, unsigned number) {
  for (unsigned i = 0; i < place.load.bytes / 4; ++i) {
    Word& word = place.use(i);
    if (word.senders != 0) broken(number, "is loaded while a store reads it");
    if (word.read == now() && (word.readers & ~(1u << lane())) != 0) {
      broken(number, "is loaded without a barrier behind a lane that has read it");
    }
    if (word.writer != kNobody && word.fenced == 0) {
      broken(number, "is loaded without fence_stage behind a lane that has stored to it");
    }
    if (word.writer != kNobody && word.writer != lane() && word.fenced == now()) {
      broken(number, "is loaded without a barrier behind a lane that has stored to it");
    }
    word = {.load = place.load.number};
  }
  const bool late = machine_.scheduler_->choose(Kind::copy, machine_.current_, 2) != 0;
  if (machine_.trace_ != nullptr) {
    note(fmt::format("load_bulk to place {}, {} bytes{}", number, place.load.bytes, late ? ", late" : ""));
  }
  place.load.phase = Phase::issued;
  wake(place.load);
  if (!late) finish(place.load, place, machine_.current_);
}

// Makes the load, unless another lane does; returns when it is made.
void Copies::finish(Load& load, Place& place, unsigned issuer) {
  while (load.phase == Phase::called || load.phase == Phase::runs) sleep(load);
  if (load.phase == Phase::done) return;
  load.phase = Phase::runs;
  for (unsigned i = 0; i < load.bytes; i += sizeof(Pack)) {
    Pack pack;
    if (machine_.memory_.holds(load.from)) {
      machine_.point();
      for (unsigned part = 0; part < sizeof(Pack); part += static_cast<unsigned>(load.unit)) {
        const Memory::Location at = machine_.memory_.locate(load.from + i + part, static_cast<unsigned>(load.unit));
        const Pack& value = machine_.read_as(machine_.memory_.proxy(issuer), at, "load.bulk");
        std::memcpy(reinterpret_cast<std::byte*>(&pack) + part, &value, static_cast<std::size_t>(load.unit));
      }
    } else {
      std::memcpy(&pack, load.from + i, sizeof(pack));
    }
    for (unsigned k = 0; k < 4; ++k) place.words[i / 4 + k].value = pack.word[k];
  }
  load.phase = Phase::done;
  wake(load);
}

void Copies::sleep(Load& load) {
  load.sleepers |= bit(machine_.current_);
  machine_.ready_ &= ~bit(machine_.current_);
  machine_.go_on();
}

void Copies::wake(Load& load) {
  machine_.ready_ |= load.sleepers;
  load.sleepers = 0;
}

void Copies::await_load(Spot spot) {
  Stage& stage = this->stage(spot);
  Place& place = stage.places[spot.place];
  Lane& own = stage.lanes[lane()];
  if (!awaits(own, spot.place)) broken(spot.place, "is awaited without a load");
  const unsigned issuer = first() + spot.place % machine_.lanes_;
  finish(place.load, place, issuer);
  own.awaited[spot.place] = place.load.number;
  see(place.load.from, place.load.bytes, place.load.unit, machine_.memory_.proxy(issuer), true);
}

// A completed copy is behind an implicit fence of both proxies. `poll`: a wait that reads in bulk wakes for news.
void Copies::see(const std::byte* memory, unsigned bytes, int unit, unsigned by, bool poll) {
  if (!machine_.memory_.holds(memory)) return;
  for (unsigned i = 0; i < bytes; i += static_cast<unsigned>(unit)) {
    const Memory::Location at = machine_.memory_.locate(memory + i, static_cast<unsigned>(unit));
    machine_.memory_.see_copy(machine_.current_, by, at);
    if (poll) machine_.polled_[machine_.current_].push_back(at);
  }
}

// Until the store has read its place, nobody may write there: so it can take the words now.
void Copies::store(void* to, Spot spot, unsigned from, unsigned bytes, int unit) {
  Stage& stage = this->stage(spot);
  check_copy(spot.place, to, bytes);
  if (from % sizeof(Pack) != 0 || from + bytes > kBytes) {
    broken(spot.place, fmt::format("is stored from byte {} on, {} bytes", from, bytes));
  }
  Lane& own = stage.lanes[lane()];
  Store store{static_cast<std::byte*>(to), spot.place, from, bytes, unit, own.groups};
  for (unsigned i = 0; i < bytes / 4; ++i) {
    Word& word = stage.places[spot.place].use(from / 4 + i);
    check_loaded(stage, spot.place, from / 4 + i, "stored");
    if (word.writer != kNobody && word.fenced == 0) {
      broken(spot.place, fmt::format("is stored without fence_stage of lane {}, which has written it", word.writer));
    }
    if (word.writer != kNobody && word.writer != lane() && word.fenced == now()) {
      broken(spot.place, fmt::format("is stored without a barrier behind lane {}, which has written it", word.writer));
    }
    word.senders |= 1u << lane();
    store.data[i] = word.value;
  }
  const bool late = machine_.scheduler_->choose(Kind::copy, machine_.current_, 2) != 0;
  if (machine_.trace_ != nullptr) {
    note(fmt::format("store_bulk from place {}, {} bytes{}", spot.place, bytes, late ? ", late" : ""));
  }
  own.stores.push_back(store);
  if (!late) run(own.stores.back());
}

void Copies::run(Store& store) {
  store.late = false;
  for (unsigned i = 0; i < store.bytes; i += static_cast<unsigned>(store.unit)) {
    const auto* const data = reinterpret_cast<const std::byte*>(store.data.data()) + i;
    if (!machine_.memory_.holds(store.to)) {
      std::memcpy(store.to + i, data, static_cast<std::size_t>(store.unit));
      continue;
    }
    if (i % sizeof(Pack) == 0 || machine_.stop_) machine_.point();  // a killed rank may leave half a pack
    Pack part{};
    std::memcpy(&part, data, static_cast<std::size_t>(store.unit));
    const Memory::Location at = machine_.memory_.locate(store.to + i, static_cast<unsigned>(store.unit));
    machine_.write_as(machine_.memory_.proxy(machine_.current_), at, part, "store.bulk");
  }
}

void Copies::commit(unsigned block) {
  ++stage({block, 0}).lanes[lane()].groups;
}

void Copies::await_reads(unsigned block, unsigned pending) {
  Stage& stage = this->stage({block, 0});
  Lane& own = stage.lanes[lane()];
  const LaneMask me = 1u << lane();
  for (Place& place : stage.places) {
    for (Word& word : place.all_used()) word.senders &= ~me;
  }
  for (Store& store : own.stores) {
    const bool read = store.reads && store.group + pending < own.groups;
    store.reads = store.reads && !read;
    for (unsigned i = 0; i < store.bytes / 4; ++i) {
      Word& word = stage.places[store.place].use(store.from / 4 + i);
      if (read) mark_read(word);
      if (store.reads) word.senders |= me;
    }
  }
}

void Copies::await_stores(unsigned block, unsigned pending) {
  await_reads(block, pending);
  Lane& own = stage({block, 0}).lanes[lane()];
  const auto ended = [&](const Store& store) { return store.group + pending < own.groups; };
  for (Store& store : own.stores) {
    if (!ended(store)) continue;
    if (store.late) run(store);
    see(store.to, store.bytes, store.unit, machine_.memory_.proxy(machine_.current_), false);
  }
  std::erase_if(own.stores, ended);
}

}  // namespace weft::sim
