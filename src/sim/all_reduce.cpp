#include "sim/all_reduce.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "numeric/numeric.hpp"
#include "sim/run_as.hpp"
#include "weft/error.hpp"

namespace weft::sim {

using detail::Element;

std::uint64_t element_bits(Payload payload, DataType type, unsigned call, unsigned rank, std::uint64_t i) {
  const std::uint64_t base = std::uint64_t{call} * 1'000'003 + std::uint64_t{rank} * 10'007;
  Random random(base + i);
  const bool narrow = size_of(type) == 2;
  if (payload == Payload::special) {
    // Whole words of the wire, now and then the same on all ranks: so there are sums of −0 alone, and packs of
    // sentinels alone.
    constexpr std::uint32_t specials[] = {0xffffffffu, 0x80000000u, 0u,         0x7fc00000u,
                                          0xff800000u, 0x00000001u, 0xffffffffu};
    const std::uint64_t word = narrow ? i / 2 : i;
    Random of_word(std::uint64_t{call} * 31 + word);
    const unsigned shared = of_word.below(12);
    const unsigned choice = shared < 3 ? shared : Random(base + word).below(12);
    if (choice < std::size(specials)) return narrow ? specials[choice] >> 16 : specials[choice];
  }
  if (type == DataType::i64) return random.next();
  if (!is_floating(type)) return static_cast<std::uint32_t>(random.next()) >> (32 - 8 * size_of(type));
  // A power of two from a wide range makes sums depend on their order; else numbers of one size.
  const std::uint32_t exponent = payload == Payload::rounding ? 100 + random.below(56) : 127;
  const std::uint32_t sign = payload == Payload::rounding ? random.below(2) << 31 : 0;
  const std::uint32_t bits = sign | exponent << 23 | static_cast<std::uint32_t>(random.next() >> 41);
  return narrow ? bits >> 16 : bits;
}

namespace {

template <DataType type>
std::uint64_t reduced(ReduceOp op, const std::vector<std::uint64_t>& terms) {
  using Storage = typename Element<type>::Storage;
  auto total = Element<type>::widen(static_cast<Storage>(terms[0]));
  for (std::size_t i = 1; i < terms.size(); ++i) {
    const auto term = Element<type>::widen(static_cast<Storage>(terms[i]));
    if (op == ReduceOp::max) {
      total = detail::larger(total, term);
    } else if (op == ReduceOp::min) {
      total = detail::flipped(detail::larger(detail::flipped(total), detail::flipped(term)));
    } else {
      total += term;
    }
  }
  if (op == ReduceOp::avg) total = detail::divided(total, static_cast<std::uint32_t>(terms.size()));
  return Element<type>::narrow(total);
}

}  // namespace

std::uint64_t reduced(DataType type, ReduceOp op, const std::vector<std::uint64_t>& terms) {
  switch (type) {
    case DataType::bf16:
      return reduced<DataType::bf16>(op, terms);
    case DataType::f16:
      return reduced<DataType::f16>(op, terms);
    case DataType::f32:
      return reduced<DataType::f32>(op, terms);
    case DataType::i32:
      return reduced<DataType::i32>(op, terms);
    case DataType::i64:
      return reduced<DataType::i64>(op, terms);
    case DataType::u8:
      return reduced<DataType::u8>(op, terms);
  }
  return 0;
}

namespace {

// A hash that is equal for equal calls and differs for different ones. Production uses base/fingerprint instead.
std::uint32_t fingerprint(const Setup& setup, unsigned call, unsigned rank) {
  const CallSetup& spec = setup.call(call, rank);
  const bool odd = setup.is_odd(call, rank) && !setup.faults.odd && !setup.faults.lacks_room();
  return static_cast<std::uint32_t>(0x57ef7000u + spec.count + (spec.rows - 1) * 0x100000u +
                                    static_cast<unsigned>(spec.moving) * 0x1000u + (odd ? 0x100u : 0u));
}

}  // namespace

AllReduceProgram::AllReduceProgram(const Setup& setup) : setup_(setup), world_(setup) {
  const Machine::Args args = world_.machine_args();
  machine_ = std::make_unique<Machine>(args);
  world_.build(machine_->memory());
  stream_of_.resize(args.rank_of.size());
  for (unsigned i = 0; i < world_.streams().size(); ++i) {
    const World::Stream& stream = world_.streams()[i];
    const unsigned threads = setup.one_thread ? 1 : stream.blocks * stream.threads;
    for (unsigned k = 0; k < threads; ++k) stream_of_[stream.first_thread + k] = i;
  }
  tensors_.resize(setup.calls.size() * setup.ranks);
  if (setup.has_exchange()) reset_tables();
  for (unsigned call = 0; call < setup.calls.size(); ++call) {
    if (setup.calls[call].act != Act::call) continue;
    for (const unsigned rank : world_.groups()[setup.calls[call].group]) fill(call, rank);
  }
  note_parts();
}

void AllReduceProgram::note_parts() {
  parts_.resize(tensors_.size());
  for (unsigned call = 0; call < setup_.calls.size(); ++call) {
    if (setup_.calls[call].act != Act::call) continue;
    for (const unsigned rank : world_.groups()[setup_.calls[call].group]) {
      const detail::Channel& channel = world_.channel(setup_.calls[call].group, rank);
      const Grid grid = world_.grid(call, rank);
      parts_[call * setup_.ranks + rank] = {
          .call = detail::make_call(channel, &channel, world_.generation(call), fingerprint(setup_, call, rank)),
          .grid = grid,
          .threads = setup_.one_thread ? 1 : grid.blocks * grid.threads,
          .host_epoch = host_epoch(call),
          .awaited = std::ranges::any_of(
              setup_.calls, [=](const CallSetup& other) { return other.after == static_cast<int>(call); })};
    }
  }
}

std::vector<std::uint32_t>& AllReduceProgram::make_tensors(unsigned call, unsigned rank, std::size_t bytes) {
  Tensors& t = tensors(call, rank);
  t.initial.assign(bytes / 4 + 4, 0xa5a5a5a5u);
  if (recorded(call) == call) t.memory = t.initial;
  return tensors(recorded(call), rank).memory;
}

void AllReduceProgram::fill(unsigned call, unsigned rank) {
  const CallSetup& spec = setup_.call(call, rank);
  if (spec.is_later()) {
    tensors(call, rank).kernel = tensors(static_cast<unsigned>(spec.of), rank).later[turn_of(spec) - 1];
    return;
  }
  if (spec.moving == Moving::dispatch) return fill_dispatch(call, rank);
  if (spec.moving == Moving::trial) return fill_trial(call, rank);
  if (spec.moving == Moving::combine) return fill_combine(call, rank);
  if (spec.moving == Moving::rejection) {
    tensors(call, rank).kernel = find_rejection_kernel({setup_.atomic_bytes, setup_.one_thread});
    return;
  }
  if (spec.moving == Moving::rms_norm) return fill_norm(call, rank);
  if (spec.moving == Moving::gather_counts) return fill_counts(call, rank);
  if (spec.moving == Moving::all_gather_columns || spec.moving == Moving::all_to_all_columns) {
    return fill_columns(call, rank);
  }
  if (spec.moving == Moving::gather_sums_norm || spec.moving == Moving::scatter_sums_norm) {
    return fill_normed_crossing(call, rank);
  }
  if (spec.moving == Moving::gather_sums || spec.moving == Moving::scatter_sums) return fill_crossing(call, rank);
  if (spec.moving == Moving::top_k_columns) return fill_top_k(call, rank);
  if (spec.moving == Moving::messages) return fill_messages(call, rank);
  if (spec.moving != Moving::nothing) return fill_move(call, rank);
  fill_all_reduce(call, rank);
}

// Counts in the ordinary execution. Any would do: a call's arguments alone decide how much it sends.
void AllReduceProgram::count_what_is_needed() {
  needed_.assign(setup_.calls.size(), kUnknown);
  Scheduler ordinary = Scheduler::replay({});
  ordinary.begin();
  run(ordinary);
}

Failure AllReduceProgram::run(Scheduler& scheduler, const std::optional<Stop>& stop) {
  if (stop && needed_.empty()) count_what_is_needed();
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    Tensors& t = tensors_[i];
    if (!t.memory.empty()) std::copy(t.initial.begin(), t.initial.end(), t.memory.begin());
    t.user = static_cast<unsigned>(i / setup_.ranks);
    t.result.clear();
  }
  host_saw_.clear();
  if (setup_.has_exchange()) reset_tables();
  begun_.assign(world_.streams().size(), 0);
  unread_.assign(setup_.ranks, -1);
  threads_ended_.assign(tensors_.size(), 0);
  idled_.assign(setup_.ranks, 0);
  meetings_.assign(setup_.ranks, 0);
  stores_before_.assign(setup_.ranks, 0);
  return machine_->run(*this, scheduler, stop);
}

void AllReduceProgram::run(unsigned thread, unsigned launch) {
  const World::Stream& stream = world_.streams()[stream_of_[thread]];
  if (stream.host) return run_host(stream.rank);
  const unsigned call = stream.calls[launch];
  if (setup_.calls[call].act != Act::call) return run_act(setup_.calls[call].act, call, stream.rank);
  if (const int before = setup_.calls[call].after; before >= 0) {
    while (machine_->load(world_.event_word(static_cast<unsigned>(before), stream.rank), true) == 0) machine_->relax();
  }
  unsigned& begun = begun_[stream_of_[thread]];
  if (begun <= launch) begin_call(call, stream.rank, thread);
  begun = launch + 1;
  if (setup_.faults.overlaps) wait_for_overlap(call, stream.rank);
  const unsigned within = thread - stream.first_thread;
  const Part& part = parts_[call * setup_.ranks + stream.rank];
  const Place place{.block = within / stream.threads,
                    .blocks = part.grid.blocks,
                    .thread = within % stream.threads,
                    .threads = part.grid.threads,
                    .host_epoch = part.host_epoch};
  tensors(call, stream.rank).kernel(*machine_, place, part.call);
  end_call(call, stream.rank);
}

std::uint32_t AllReduceProgram::host_epoch(unsigned call) const {
  std::uint32_t epoch = setup_.start_epoch;
  for (unsigned before = 0; before < recorded(call); ++before) {
    const CallSetup& spec = setup_.calls[before];
    if (spec.begins_epoch() && spec.replays < 0 && spec.group == setup_.calls[call].group) ++epoch;
  }
  return epoch;
}

// By the first thread that runs of a call. A replay finds new data at the addresses of its recording.
void AllReduceProgram::begin_call(unsigned call, unsigned rank, unsigned thread) {
  begin_round(call, rank);
  read_symmetric(rank, thread);
  if (setup_.call(call, rank).symmetric) unread_[rank] = static_cast<int>(call);
  Tensors& shared = tensors(recorded(call), rank);
  if (recorded(call) == call) return;
  tensors(shared.user, rank).result = shared.memory;
  shared.user = call;
  std::ranges::copy(tensors(call, rank).initial, shared.memory.begin());
}

// Stands for work enqueued behind a call, which reads its outputs: as late as the next call allows, and the oldest
// values that it may see there. At the end, without a thread, it reads the newest values.
void AllReduceProgram::read_symmetric(unsigned rank, std::optional<unsigned> thread) {
  if (unread_[rank] < 0) return;
  const auto call = static_cast<unsigned>(std::exchange(unread_[rank], -1));
  Tensors& t = tensors(recorded(call), rank);
  Memory& memory = machine_->memory();
  const auto unit = static_cast<unsigned>(setup_.atomic_bytes);
  for (const Tensors::Stretch& stretch : tensors(call, rank).symmetric) {
    for (std::size_t at = 0; at < stretch.bytes; at += unit) {
      const Memory::Location from = memory.locate(world_.symmetric(rank) + stretch.from + at, unit);
      const Pack& found = thread ? memory.load(*thread, from, memory.choices(*thread, from) - 1) : memory.newest(from);
      std::memcpy(reinterpret_cast<std::byte*>(t.memory.data()) + stretch.to + at, &found, unit);
    }
  }
}

// The record that a host finds when it sees a failed call end, whichever group's fault was the first.
void AllReduceProgram::look_for_record(unsigned call, unsigned rank) {
  const auto newest = [&](const std::uint32_t* word) {
    Memory& memory = machine_->memory();
    return memory.newest(memory.locate(word, sizeof(*word))).word[0];
  };
  // If nothing orders two calls, one may end well while the other one ends their group.
  if (setup_.faults.unordered_rank >= 0 && !setup_.faults.overlaps) return;
  if (newest(&world_.local(setup_.calls[call].group, rank)->dead) == 0) return;
  if (newest(&world_.record(rank, detail::kEnding)->complete) != 0) return;
  host_saw_ = fmt::format("call {} has failed on rank {}, and when it ended nothing was on record", call, rank);
}

// The last thread to leave a call signals calls of other streams that wait for it.
void AllReduceProgram::end_call(unsigned call, unsigned rank) {
  idled_[rank] = machine_->idled();
  const Part& part = parts_[call * setup_.ranks + rank];
  if (++threads_ended_[call * setup_.ranks + rank] != part.threads) return;
  look_for_record(call, rank);
  end_round(call, rank);
  if (setup_.faults.stopping_rank == static_cast<int>(rank) && !needed_.empty() && needed_[call] == kUnknown) {
    needed_[call] = machine_->memory().sent(rank);
  }
  if (part.awaited) machine_->store(world_.event_word(call, rank), 1u, true);
}

// The unordered rank's later calls begin when its first one is running. That call cannot end: every other rank begins
// only after it was told that all is over.
void AllReduceProgram::wait_for_overlap(unsigned call, unsigned rank) {
  const auto wait_for = [&](auto&&... word) {
    while (((machine_->load(word) == 0) && ...)) machine_->relax();
  };
  if (setup_.faults.unordered_rank != static_cast<int>(rank)) return wait_for(world_.poison_word(rank));
  const detail::LocalState* const local = world_.local(setup_.calls[call].group, rank);
  if (call != 0) wait_for(&local->busy, &local->dead);
}

// Does the work of comm/state.cpp and comm/group_state.cpp on each rank; all ranks meet before and after.
void AllReduceProgram::run_act(Act act, unsigned call, unsigned rank) {
  const std::uint32_t generation = world_.generation_at(call);
  const auto for_groups = [&](auto&& body) {
    for (unsigned group = 0; group < world_.groups().size(); ++group) {
      if (world_.group_rank(group, rank) < world_.groups()[group].size()) body(group);
    }
  };
  const auto stores = [&] { return world_.stores_to_window(machine_->memory(), rank); };
  const auto admit = [&](unsigned group) {
    for (detail::BlockWord& word : world_.local(group, rank)->admitted) machine_->store(&word.value, generation);
  };
  if (act == Act::release) {
    for_groups([&](unsigned group) { admit(group); });
    meet(rank);
    stores_before_[rank] = stores();
    return meet(rank);
  }
  meet(rank);
  if (stores() != stores_before_[rank]) host_saw_ = "somebody wrote to a window that was away";
  detail::FaultRecord* const record = world_.record(rank, detail::kStaleReplay);
  if (machine_->load(&record->complete) != 0) {
    machine_->store(&record->complete, 0u);
    machine_->store(world_.claim_word(rank, detail::kStaleReplay), 0u);
  }
  for_groups([&](unsigned group) {
    detail::LocalState* const local = world_.local(group, rank);
    const std::uint64_t last = machine_->load(&local->epochs[0].value) - 1;
    for (std::size_t i = 0; i < detail::kBanks * world_.groups()[group].size(); ++i) {
      machine_->store(world_.header(group, rank, i), last << 32);
    }
    admit(group);
  });
  meet(rank);
}

void AllReduceProgram::meet(unsigned rank) {
  const std::uint32_t number = ++meetings_[rank];
  machine_->store(world_.meeting_word(rank), number, true);
  for (unsigned peer = 0; peer < setup_.ranks; ++peer) {
    while (machine_->load(world_.meeting_word(peer), true) < number) machine_->relax();
  }
}

void AllReduceProgram::run_host(unsigned rank) {
  if (setup_.faults.aborting_rank == static_cast<int>(rank)) {
    machine_->store(world_.abort_word(rank), 1u);
    const std::uint32_t word = detail::poison_word(rank, rank, static_cast<std::uint32_t>(Errc::aborted));
    for (unsigned peer = 0; peer < setup_.ranks; ++peer) machine_->store(world_.poison_word(peer), word);
  }
  if (!setup_.faults.host_reads || rank != 0) return;
  detail::FaultRecord* const record = world_.record(rank, detail::kEnding);
  while (machine_->load(&record->complete, true) == 0) machine_->relax();
  if (machine_->load(&record->code) == 0) host_saw_ = "the host read a record without a code";
}

}  // namespace weft::sim
