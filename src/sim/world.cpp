#include "sim/world.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

#include "protocol/mail.hpp"
#include "tuning/tuning.hpp"
#include "weft/error.hpp"

namespace weft::sim {
namespace {

using detail::FaultRecord;
using detail::LocalState;
using detail::RegionLayout;

constexpr std::size_t kLocalBytes = (sizeof(LocalState) + 255) / 256 * 256;
constexpr std::size_t kHostBytes = 512;  // claims, abort, meeting, records, events
constexpr std::size_t kAbortOffset = 8, kMeetingOffset = 12, kRecordOffset = 16, kEventsOffset = 256;
static_assert(kRecordOffset + detail::kFaultKinds * sizeof(FaultRecord) <= kEventsOffset);

}  // namespace

World::World(const Setup& setup) : setup_(setup), groups_(setup.groups) {
  if (setup.has_exchange()) exchange_ = exchange_regions(setup);
  if (groups_.empty()) {
    groups_.emplace_back(setup.ranks);
    std::iota(groups_[0].begin(), groups_[0].end(), 0u);
    if (setup.has_exchange()) groups_.push_back(groups_[0]);
  }
  std::uint32_t number = 1;
  bool away = false;
  for (const CallSetup& call : setup.calls) {
    if (call.act != Act::call) away = call.act == Act::release;
    number += call.act == Act::acquire_elsewhere;
    generations_.push_back(away ? detail::kReleased : number);
  }
  state_offset_ = detail::kWindowHeaderBytes;
  for (const auto& group : groups_) {
    if (setup.has_exchange()) {
      layouts_.push_back(exchange_->channel(static_cast<unsigned>(layouts_.size())));
      state_offset_ += layouts_.back().bytes;
      continue;
    }
    if (is_mail(static_cast<unsigned>(layouts_.size()))) {
      layouts_.push_back(detail::mail_layout(static_cast<std::uint32_t>(group.size()),
                                             {.slots = setup.pipeline_slots, .packs = setup.pipeline_packs}));
      state_offset_ += layouts_.back().bytes;
      continue;
    }
    std::uint64_t most = 1;
    for (const CallSetup& call : setup.calls)
      most = std::max(most, call.piece != 0 ? call.piece * 8 : call.count * call.rows);
    const std::size_t wire_bytes = most * size_of(setup.type) * (is_floating(setup.type) ? 1 : 2);
    // Two tiles of bundles in each slot (wire/line.hpp), because no call has more than two tensors.
    const bool copies = std::ranges::any_of(
        setup.calls, [](const CallSetup& c) { return c.moving != Moving::nothing && c.moving != Moving::rms_norm; });
    const std::size_t shards = copies ? group.size() * 256 * sizeof(Pack) : wire_bytes;
    layouts_.push_back(detail::make_layout(static_cast<std::uint32_t>(group.size()), wire_bytes, shards,
                                           {.slots = setup.pipeline_slots, .packs = setup.pipeline_packs},
                                           setup.pipeline_slots));
    if (detail::is_multimem(setup.algorithm)) {
      const auto size = static_cast<std::uint32_t>(group.size());
      multimem_ = detail::add_multimem(layouts_.back(), size, wire_bytes);
    }
    state_offset_ += layouts_.back().bytes;
  }
  rank_bytes_ = state_offset_ + groups_.size() * kLocalBytes + kHostBytes + (setup.symmetric_bytes + 255) / 256 * 256;

  for (unsigned rank = 0; rank < setup.ranks; ++rank) {
    const bool unordered = setup.faults.unordered_rank == static_cast<int>(rank);
    const std::size_t by_group = setup.side_by_side ? groups_.size() : 1;
    const std::size_t per_rank = unordered ? setup.calls.size() : by_group;
    for (unsigned i = 0; i < per_rank; ++i) {
      Stream stream{.rank = rank, .blocks = 0, .threads = 0, .first_thread = thread_count_, .calls = {}};
      for (unsigned call = 0; call < setup.calls.size(); ++call) {
        if (setup.side_by_side && setup.calls[call].group != i) continue;
        if ((unordered && call != i) || !takes_part(call, rank)) continue;
        const Grid on = grid(call, rank);
        stream.blocks = std::max(stream.blocks, on.blocks);
        stream.threads = std::max(stream.threads, on.threads);
        stream.calls.push_back(call);
      }
      most_blocks_ = std::max(most_blocks_, stream.blocks);
      if (most_blocks_ > Machine::kMostBlocks) throw std::logic_error("simulator: more blocks than a launch may have");
      thread_count_ += setup.one_thread ? 1 : stream.blocks * stream.threads;
      streams_.push_back(std::move(stream));
    }
  }
  const auto add_host = [&](unsigned rank) {
    streams_.push_back(
        {.rank = rank, .blocks = 1, .threads = 1, .first_thread = thread_count_++, .calls = {}, .host = true});
  };
  if (setup.faults.aborting_rank >= 0) add_host(static_cast<unsigned>(setup.faults.aborting_rank));
  if (setup.faults.host_reads) add_host(0);
}

unsigned World::group_rank(unsigned group, unsigned rank) const {
  const auto& members = groups_[group];
  return static_cast<unsigned>(std::find(members.begin(), members.end(), rank) - members.begin());
}

bool World::takes_part(unsigned call, unsigned rank) const {
  const CallSetup& setup = setup_.calls[call];
  if (setup.act != Act::call) return true;
  if (setup.only >= 0) return setup.only == static_cast<int>(rank);
  const auto& members = groups_[setup.group];
  return std::find(members.begin(), members.end(), rank) != members.end();
}

std::uint32_t World::generation(unsigned call) const {
  const int recorded = setup_.calls[call].replays;
  return generation_at(recorded >= 0 ? static_cast<unsigned>(recorded) : call);
}

// Whether the rank's last fault is a stale replay that no acquire() has wiped away.
bool World::ends_released(unsigned rank) const {
  bool released = false;
  for (unsigned call = 0; call < setup_.calls.size(); ++call) {
    const Act act = setup_.calls[call].act;
    if (act == Act::acquire || act == Act::acquire_elsewhere) released = false;
    if (act == Act::call && takes_part(call, rank) && stale(call)) released = true;
  }
  return released;
}

Grid World::grid(unsigned call, unsigned rank) const {
  const CallSetup& setup = setup_.calls[call];
  if (setup_.one_thread) return {};
  if (setup.act != Act::call) return {.blocks = 1, .threads = 1};
  return setup.grids[std::min<std::size_t>(group_rank(setup.group, rank), setup.grids.size() - 1)];
}

Machine::Args World::machine_args() const {
  Machine::Args args{.bytes = rank_bytes_ * setup_.ranks,
                     .rank_of = {},
                     .streams = {},
                     .lanes = setup_.lanes,
                     .copies = setup_.copies()};
  args.rank_of.resize(thread_count_);
  for (const Stream& stream : streams_) {
    std::vector<Launch> launches;
    if (stream.host) {
      launches.push_back({bit(stream.first_thread)});
      args.rank_of[stream.first_thread] = stream.rank;
    }
    for (const unsigned call : stream.calls) {
      if (setup_.one_thread) {
        launches.push_back({bit(stream.first_thread)});
        args.rank_of[stream.first_thread] = stream.rank;
        continue;
      }
      const Grid on = grid(call, stream.rank);
      Launch launch;
      for (unsigned block = 0; block < on.blocks; ++block) {
        ThreadMask threads = 0;
        for (unsigned thread = 0; thread < on.threads; ++thread) {
          const unsigned id = stream.first_thread + block * stream.threads + thread;
          threads |= bit(id);
          args.rank_of[id] = stream.rank;
        }
        launch.push_back(threads);
      }
      launches.push_back(std::move(launch));
    }
    args.streams.push_back(std::move(launches));
  }
  if (setup_.deadline_ns != 0 || setup_.faults.any()) args.idle_ns = kIdleNs;
  return args;
}

std::vector<std::string> World::thread_names() const {
  std::vector<std::string> names(thread_count_);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream& stream = streams_[i];
    if (stream.host) {
      names[stream.first_thread] = fmt::format("{}.host", stream.rank);
      continue;
    }
    std::string rank = fmt::format("{}", stream.rank);
    if (setup_.side_by_side) rank += fmt::format("/{}", i % groups_.size());
    if (setup_.faults.unordered_rank == static_cast<int>(stream.rank)) rank += fmt::format("/{}", stream.calls[0]);
    const unsigned threads = setup_.one_thread ? 1 : stream.blocks * stream.threads;
    for (unsigned k = 0; k < threads; ++k) {
      names[stream.first_thread + k] = fmt::format("{}.{}.{}", rank, k / stream.threads, k % stream.threads);
    }
  }
  return names;
}

std::size_t World::region_offset(unsigned group, unsigned rank) const {
  std::size_t offset = window_offset(rank) + detail::kWindowHeaderBytes;
  for (unsigned i = 0; i < group; ++i) offset += layouts_[i].bytes;
  return offset;
}

std::size_t World::local_offset(unsigned group, unsigned rank) const {
  return window_offset(rank) + state_offset_ + group * kLocalBytes;
}

std::size_t World::host_offset(unsigned rank) const {
  return window_offset(rank) + state_offset_ + groups_.size() * kLocalBytes;
}

detail::LocalState* World::local(unsigned group, unsigned rank) const {
  return reinterpret_cast<LocalState*>(base_ + local_offset(group, rank));
}

void World::build(Memory& memory) {
  base_ = memory.data();
  channels_.assign(groups_.size() * setup_.ranks, {});
  for (unsigned rank = 0; rank < setup_.ranks; ++rank) {
    const std::string prefix = fmt::format("rank{}.", rank);
    // `first`: the number of the word at `begin`; `distance`: from one word to the next.
    const auto words = [&](std::size_t begin, std::size_t end, AreaKind kind, const std::string& name,
                           std::size_t first = 0, std::size_t distance = 4) {
      memory.add_area({begin, end, rank, kind, [=](std::size_t offset) {
                         const std::size_t number = first + offset / distance;
                         return number == 0 ? prefix + name : fmt::format("{}{}[{}]", prefix, name, number);
                       }});
    };
    words(window_offset(rank), window_offset(rank) + detail::kWindowHeaderBytes, AreaKind::word, "poison");
    const std::size_t host = host_offset(rank);
    words(host, host + kAbortOffset, AreaKind::word, "claim");
    words(host + kAbortOffset, host + kAbortOffset + 4, AreaKind::word, "abort");
    words(host + kMeetingOffset, host + kMeetingOffset + 4, AreaKind::word, "meeting");
    words(host + kRecordOffset, host + kEventsOffset, AreaKind::word, "record");
    words(host + kEventsOffset, host + kHostBytes, AreaKind::word, "ended");
    const std::size_t symmetric = host + kHostBytes;
    words(symmetric, symmetric + setup_.symmetric_bytes, setup_.tells_counts() ? AreaKind::told : AreaKind::word,
          "symmetric");
    std::memset(base_ + symmetric, 0xa5, setup_.symmetric_bytes);  // like outputs from make_tensors()
    for (unsigned group = 0; group < groups_.size(); ++group) {
      const std::size_t state = local_offset(group, rank);
      words(state + offsetof(LocalState, dead), state + offsetof(LocalState, dead) + 4, AreaKind::word, "dead");
      words(state + offsetof(LocalState, busy), state + offsetof(LocalState, busy) + 4, AreaKind::word, "busy");
      const auto of_blocks = [&](std::size_t begin, const char* name) {
        constexpr std::size_t kDistance = sizeof(detail::BlockWord);
        for (unsigned block = 0; block < most_blocks_; ++block) {
          words(begin + block * kDistance, begin + block * kDistance + 4, AreaKind::word, name, block);
        }
        words(begin + most_blocks_ * kDistance, begin + detail::kMaxBlocks * kDistance, AreaKind::ignored, name,
              most_blocks_, kDistance);
      };
      of_blocks(state + offsetof(LocalState, admitted), "admitted");
      of_blocks(state + offsetof(LocalState, epochs), "epochs");
      const std::uint32_t ahead = setup_.faults.ahead_rank == static_cast<int>(rank) ? 2 : 0;
      local(group, rank)->admit(1);
      local(group, rank)->begin_at(setup_.start_epoch + ahead);

      const RegionLayout& layout = layouts_[group];
      // As GroupState::arm() does it: what is not filled may hold anything.
      const bool chunked = layout.pipeline_packs != 0 && multimem_.packs == 0;
      std::byte* const region = base_ + region_offset(group, rank);
      std::memset(region, 0xff, layout.bytes);
      if (chunked) std::memset(region + layout.pipeline_signals, 0xa5, layout.bytes - layout.pipeline_signals);
      const auto size = static_cast<std::uint32_t>(groups_[group].size());
      const auto make_old = [&](std::uint64_t offset, std::uint64_t n) {
        std::fill_n(reinterpret_cast<std::uint64_t*>(region + offset), n, std::uint64_t{setup_.start_epoch - 1} << 32);
      };
      if (is_mail(group)) {
        detail::each_old_mail_word(layout, size, make_old);
      } else {
        detail::each_old_words(layout, size, make_old);
      }
      make_old(multimem_.signals, 2 * multimem_.chunks * size);
      if (has_old_records()) exchange_->age(region, group, setup_.start_epoch);
      name_region(memory, group, rank);

      detail::Channel& c = channel(group, rank);
      c.id = group;
      c.rank = group_rank(group, rank);
      c.size = size;
      c.deadline_ns = setup_.deadline_ns;
      c.layout = layout;
      c.local = local(group, rank);
      c.multimem = multimem_;
      c.claim = claim_word(rank, detail::kEnding);
      c.abort = abort_word(rank);
      c.record = record(rank, detail::kEnding);
      c.world_rank = rank;
      c.world_size = setup_.ranks;
      for (unsigned i = 0; i < size; ++i) {
        c.member[i] = groups_[group][i];
        c.region[i] = base_ + region_offset(group, groups_[group][i]);
      }
      for (unsigned i = 0; i < setup_.ranks; ++i) c.window[i] = base_ + window_offset(i);
    }
  }
}

std::string World::check_rest(Memory& memory) const {
  std::string wrong;
  memory.each_location([&](Memory::Location at, AreaKind kind, unsigned bytes) {
    if (kind != AreaKind::slot || std::memcmp(&memory.newest(at), &detail::kRestPack, bytes) == 0) return;
    if (wrong.empty()) wrong = memory.name(at) + " is not at rest after the last call";
  });
  for (unsigned group = 0; group < groups_.size() && wrong.empty(); ++group) {
    std::uint32_t calls = 0;
    for (unsigned call = 0; call < setup_.calls.size(); ++call) {
      const CallSetup& spec = setup_.calls[call];
      calls += spec.begins_epoch() && spec.group == group && !stale(call);
    }
    for (const unsigned rank : groups_[group]) {
      const auto expect = [&](const std::uint32_t* word, std::uint32_t value) {
        const std::uint32_t got =
            memory.ignored(word) ? memory.last(word) : memory.newest(memory.locate(word, 4)).word[0];
        if (got != value && wrong.empty()) {
          wrong = fmt::format("{} is {:#x} after the last call, not {:#x}", memory.name_of(word), got, value);
        }
      };
      const LocalState* state = local(group, rank);
      expect(&state->busy, 0);
      expect(&state->dead, 0);
      for (unsigned block = 0; block < Machine::kMostBlocks; ++block) {
        expect(&state->epochs[block].value, setup_.start_epoch + calls);
      }
      if (!has_old_records() || !wrong.empty()) continue;
      wrong = exchange_->check_ages(memory, base_ + region_offset(group, rank), group, setup_.start_epoch + calls);
    }
  }
  for (unsigned rank = 0; rank < setup_.ranks && wrong.empty(); ++rank) {
    const auto record = fault(memory, rank);
    const bool released = fault(memory, rank, detail::kStaleReplay).has_value();
    if (released != ends_released(rank)) {
      wrong =
          fmt::format("rank {} {}", rank,
                      released ? "ended in \"released\" without a stale replay" : "took a stale replay for a good one");
    } else if (record) {
      wrong = fmt::format("rank {} recorded a fault: code {}, peer {}, epoch {:#x}", rank, record->code, record->peer,
                          record->epoch_wanted);
    }
  }
  return wrong;
}

std::uint64_t World::stores_to_window(const Memory& memory, unsigned rank) const {
  return memory.stores(window_offset(rank), window_offset(rank) + state_offset_);
}

std::uint64_t World::stores_to_symmetric(const Memory& memory, unsigned rank) const {
  const std::size_t begin = host_offset(rank) + kHostBytes;
  return memory.stores(begin, begin + setup_.symmetric_bytes);
}

std::uint64_t* World::header(unsigned group, unsigned rank, std::size_t index) const {
  return reinterpret_cast<std::uint64_t*>(base_ + region_offset(group, rank) + layouts_[group].headers) + index;
}

std::uint32_t* World::claim_word(unsigned rank, detail::FaultKind kind) const {
  return reinterpret_cast<std::uint32_t*>(base_ + host_offset(rank)) + kind;
}

std::byte* World::symmetric(unsigned rank) const {
  return base_ + host_offset(rank) + kHostBytes;
}

std::uint32_t* World::meeting_word(unsigned rank) const {
  return reinterpret_cast<std::uint32_t*>(base_ + host_offset(rank) + kMeetingOffset);
}

std::uint32_t* World::event_word(unsigned call, unsigned rank) const {
  if (call >= (kHostBytes - kEventsOffset) / 4) throw std::logic_error("simulator: more calls than there are events");
  return reinterpret_cast<std::uint32_t*>(base_ + host_offset(rank) + kEventsOffset) + call;
}

std::uint32_t* World::abort_word(unsigned rank) const {
  return reinterpret_cast<std::uint32_t*>(base_ + host_offset(rank) + kAbortOffset);
}

std::uint32_t* World::poison_word(unsigned rank) const {
  return reinterpret_cast<std::uint32_t*>(base_ + window_offset(rank) + detail::kPoisonOffset);
}

FaultRecord* World::record(unsigned rank, detail::FaultKind kind) const {
  return reinterpret_cast<FaultRecord*>(base_ + host_offset(rank) + kRecordOffset) + kind;
}

std::optional<detail::FaultRecord> World::fault(Memory& memory, unsigned rank, detail::FaultKind kind) const {
  const auto* const begin = reinterpret_cast<const std::byte*>(this->record(rank, kind));
  const auto word = [&](std::size_t offset) { return memory.newest(memory.locate(begin + offset, 4)).word[0]; };
  if (word(offsetof(FaultRecord, complete)) == 0) return {};
  FaultRecord record{};
  for (std::size_t offset = 0; offset < sizeof(record); offset += 4) {
    const std::uint32_t value = word(offset);
    std::memcpy(reinterpret_cast<std::byte*>(&record) + offset, &value, 4);
  }
  return record;
}

}  // namespace weft::sim
