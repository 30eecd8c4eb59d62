// Data that a group's ranks share: the layout of its region in every rank's window, and the table through which an
// operation finds everything else. Plain data: the host fills it, kernels read it from device memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/function.hpp"
#include "base/limits.hpp"
#include "base/pack.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kBanks = 2;  // docs/protocol.md: why two are enough

// Every window begins with one word that peers write to end the communicator.
inline constexpr std::size_t kPoisonOffset = 0;
inline constexpr std::size_t kWindowHeaderBytes = 256;

// Byte offsets inside a region; the same on every rank, and independent of message sizes.
struct RegionLayout {
  // [bank][sender] words: epoch << 32 | fingerprint. Behind them [sender] words: epoch << 32 | how many calls the
  // sender has rejected in that call's place (comm/rejection.hpp).
  std::uint64_t headers;
  std::uint64_t one_shot;          // [bank][sender][one_shot_packs]
  std::uint64_t scatter;           // [bank][sender][two_shot_packs]: parts of the shard that this rank reduces
  std::uint64_t gather;            // [bank][owner][two_shot_packs]: reduced shards
  std::uint64_t pipeline_signals;  // [hop][slot][sender] words: epoch << 32 | chunk
  std::uint64_t pipeline_scatter;  // [slot][sender][pipeline_packs]
  std::uint64_t pipeline_gather;   // [slot][owner][pipeline_packs]
  std::uint64_t pipeline_credits;  // [slot][reader] words: epoch << 32 | chunk of this rank that was read
  // Copies into symmetric memory (ops/moves/symmetric_copy.hpp).
  std::uint64_t symmetric_signals;  // [hop][chunk][sender] words: epoch << 32 | chunk
  std::uint64_t ready_flags;        // [from] words: epoch << 32 | hash of the call, and its rows, that it is ready for
  std::uint64_t one_shot_packs;
  std::uint64_t two_shot_packs;    // per shard
  std::uint64_t pipeline_packs;    // of a chunk
  std::uint64_t pipeline_slots;    // most chunks of a message that are under way at once
  std::uint64_t symmetric_chunks;  // of a message, at most
  std::uint64_t bytes;             // of the whole region
};

// The buffers of the pipelined all-reduce: a power of two of slots, two or more.
struct PipelineShape {
  std::uint64_t slots = 4;
  std::uint64_t packs = 64;
};

// Most chunks of a message to symmetric memory, which has no slots to fill: one for each possible block, so two for
// each block of an H200.
inline constexpr std::uint64_t kSymmetricChunks = 256;

// `one_shot_bytes` and `two_shot_bytes`: the largest message each algorithm takes in one piece.
constexpr RegionLayout make_layout(std::uint32_t size, std::size_t one_shot_bytes, std::size_t two_shot_bytes,
                                   PipelineShape pipelined = {}, std::uint64_t symmetric_chunks = kSymmetricChunks) {
  constexpr std::uint64_t alignment = 256;
  const auto aligned = [](std::uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  const std::uint64_t packs_per_unit = alignment / sizeof(Pack);
  const auto packs = [&](std::uint64_t bytes) { return aligned(bytes) / alignment * packs_per_unit; };
  RegionLayout layout{};
  layout.one_shot_packs = packs(one_shot_bytes);
  layout.two_shot_packs = packs((two_shot_bytes + size - 1) / size);
  const std::uint64_t slots = std::uint64_t{kBanks} * size;
  layout.headers = 0;
  layout.one_shot = aligned((slots + size) * sizeof(std::uint64_t));
  layout.scatter = layout.one_shot + slots * layout.one_shot_packs * sizeof(Pack);
  layout.gather = layout.scatter + slots * layout.two_shot_packs * sizeof(Pack);
  layout.pipeline_packs = pipelined.packs;
  layout.pipeline_slots = pipelined.slots;
  layout.pipeline_signals = layout.gather + slots * layout.two_shot_packs * sizeof(Pack);
  layout.pipeline_scatter = layout.pipeline_signals + aligned(2 * pipelined.slots * size * sizeof(std::uint64_t));
  layout.pipeline_gather = layout.pipeline_scatter + aligned(pipelined.slots * size * pipelined.packs * sizeof(Pack));
  layout.pipeline_credits = layout.pipeline_gather + aligned(pipelined.slots * size * pipelined.packs * sizeof(Pack));
  layout.symmetric_chunks = symmetric_chunks;
  layout.symmetric_signals = layout.pipeline_credits + aligned(pipelined.slots * size * sizeof(std::uint64_t));
  layout.ready_flags = layout.symmetric_signals + aligned(2 * symmetric_chunks * size * sizeof(std::uint64_t));
  layout.bytes = layout.ready_flags + aligned(size * sizeof(std::uint64_t));
  return layout;
}

// Words that say "the call before the first" when a region is new: calls `visit(offset, words)` for each stretch.
template <class Visit>
constexpr void each_old_words(const RegionLayout& layout, std::uint32_t size, Visit visit) {
  const std::uint64_t ranks = size;
  visit(layout.headers, (kBanks + 1) * ranks);
  visit(layout.pipeline_signals, 2 * layout.pipeline_slots * ranks);
  visit(layout.pipeline_credits, layout.pipeline_slots * ranks);
  visit(layout.symmetric_signals, 2 * layout.symmetric_chunks * ranks);
  visit(layout.ready_flags, layout.symmetric_chunks != 0 ? ranks : 0);
}

// The area of the multimem all-reduces, the last one of a region that has it.
struct MultimemLayout {
  std::uint64_t signals;  // [hop][chunk][sender] words: epoch << 32 | chunk
  std::uint64_t stage;    // [bank][packs]: this rank's message
  std::uint64_t gather;   // [packs]: the sum
  std::uint64_t packs;    // of the largest message of one piece; 0: no such area
  std::uint64_t chunks;   // of that message, as long as chunks of the pipelined all-reduce
};
// Appends the area to the region.
constexpr MultimemLayout add_multimem(RegionLayout& region, std::uint32_t size, std::size_t largest_bytes) {
  constexpr std::uint64_t alignment = 256;
  const auto aligned = [](std::uint64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; };
  MultimemLayout multimem{};
  multimem.packs = aligned(largest_bytes) / sizeof(Pack);
  multimem.chunks = (multimem.packs + region.pipeline_packs - 1) / region.pipeline_packs;
  multimem.signals = region.bytes;
  multimem.stage = multimem.signals + aligned(2 * multimem.chunks * size * sizeof(std::uint64_t));
  multimem.gather = multimem.stage + kBanks * multimem.packs * sizeof(Pack);
  region.bytes = multimem.gather + multimem.packs * sizeof(Pack);
  return multimem;
}

// A rank has a claim and a record of each kind for a communicator: a fault that ends it must be told after a stale
// replay, too.
//   kEnding       faults that end the communicator
//   kStaleReplay  its own replays of recordings whose memory is gone, which end nothing
enum FaultKind : std::uint32_t { kEnding, kStaleReplay, kFaultKinds };

// The longest wait of a thread for another one's record, which then lacks only a dozen words.
inline constexpr std::uint64_t kRecordPatienceNs = 1'000'000'000;

// The thread that has the claim writes it; the host reads it without waiting.
struct FaultRecord {
  std::uint32_t complete;  // stored last, with release
  std::uint32_t code;      // Errc
  std::uint32_t channel;   // which group
  std::uint32_t peer;      // world rank to blame, or kNoPeer
  std::uint32_t reporter;  // … of the rank that has told this one, or kNoPeer
  std::uint32_t epoch_wanted;
  std::uint32_t epoch_seen;
  std::uint32_t fingerprint;
  std::uint32_t theirs;
  std::uint32_t phase;
  std::uint32_t misfit;  // Misfit: of a count that is too large, or negative; the next three belong to it
  std::uint32_t misfit_place;
  std::uint32_t misfit_value[2], misfit_limit[2];  // signed numbers, their lower halves first
  std::uint32_t slow_epoch;  // kEnding, not a fault: the newest call in which a wait took slow_wait_ns() …
  std::uint32_t slow_peer;   // … and the rank waited for
};
inline constexpr std::uint32_t kNoPeer = 0xffffffffu;

// A wait that takes longer is logged.
WEFT_FN constexpr std::uint64_t slow_wait_ns(std::uint64_t deadline_ns) {
  return deadline_ns != 0 ? deadline_ns / 10 : 30'000'000'000;
}

// Counts of a ragged call that its caller has on the host, in a group's memory on the device (Counts::on_host).
struct HostNumbers {
  std::int32_t number[2 * kMaxRanks];

  std::int32_t* rows() { return number; }
  std::int32_t* slots() { return number + kMaxRanks; }
};

// The number on the device that does not fit; `place`: of a rank, or of an expert.
enum class Misfit : std::uint32_t {
  none,
  count,        // of rank `place` is negative
  slot,         // … its slot is negative
  count_slot,   // … is more than its slot has
  other_count,  // … differs from its group's first rank's
  whole_rows,   // all slots have more rows than the tensor for all of them
  own_rows,     // this rank's part has more rows than its tensor
  total_rows,   // all counts are together more than a count can be
  taken_rows,   // the part that is taken has more rows than the output
  expert_rows,  // expert `place` gets more rows than it has room for
  rows_of_all,  // all experts get more rows than there is room for
  tokens,       // a dispatch made again has other tokens than the one whose routing it takes
  routing,      // … and another rank takes the routing of another one
};

// A fingerprint that no call has: its rank has rejected the call.
inline constexpr std::uint32_t kRejectedCall = 0x4a454354u;

// For a kernel whose only argument is its call.
struct NoWork {};

// The phases of a call that a launch makes, from `first` to `last`; beyond the algorithm's last one there is nothing. A
// call's launches follow each other, and no other call of the group comes between. Several of them may make the same
// phase, each a part of it (Turn).
struct Phases {
  std::uint8_t first = 0, last = 255;

  WEFT_FN constexpr bool has(int phase) const { return first <= phase && phase <= last; }
  WEFT_FN constexpr bool end(int phases) const { return last + 1 >= phases; }
  bool operator==(const Phases&) const = default;
};

// LocalState::busy: no call is under way; a launch runs; else the turn of the call's next launch.
inline constexpr std::uint32_t kIdle = 0, kBusy = 0xffffffffu;

// The turn of a launch among those of its call, and the next one's; kIdle: the call begins, or ends.
struct Turn {
  std::uint32_t own, next;
};

// A block's own word. Every warp of a launch looks at its block's words first. Looks at one line of memory wait for
// each other, about 0.5 ns each.
struct alignas(16) BlockWord {
  std::uint32_t value;
};

// State of one group that only its own rank touches.
struct LocalState {
  std::uint32_t dead;  // 1 once a call of this group has failed
  std::uint32_t busy;  // kIdle, kBusy, or the next turn of a call whose launches have not made all phases
  // Generation of the window whose calls may begin: those of another one (captured before it was released) end at
  // once. kEnded once a call of the group has failed: later calls send nothing.
  BlockWord admitted[kMaxBlocks];
  BlockWord epochs[kMaxBlocks];  // number of the next call

  // Host code, before any call.
  constexpr void admit(std::uint32_t generation) {
    for (BlockWord& word : admitted) word.value = generation;
  }
  constexpr void begin_at(std::uint32_t epoch) {
    for (BlockWord& word : epochs) word.value = epoch;
  }
};

// The table of one group on one rank.
struct Channel {
  std::uint32_t id;           // number of the group on this communicator
  std::uint32_t rank;         // in the group
  std::uint32_t size;         // of the group
  std::uint64_t deadline_ns;  // 0: none
  RegionLayout layout;
  LocalState* local;

  // One for each communicator; the first and the last are [kFaultKinds].
  std::uint32_t* claim;        // the first fault wins
  const std::uint32_t* abort;  // the host's abort()
  FaultRecord* record;

  std::uint32_t world_rank;
  std::uint32_t world_size;
  std::uint32_t member[kMaxRanks];  // world rank of each rank of the group
  std::byte* region[kMaxRanks];     // this group's region in the window of each rank of the group
  std::byte* window[kMaxRanks];     // every window of the communicator, by world rank: for poison
  MultimemLayout multimem;
  std::byte* multicast;  // the regions of all ranks through the switch; null if there is none
};

inline constexpr std::uint32_t kReleased = 0;         // generation of a window that is away
inline constexpr std::uint32_t kEnded = 0xffffffffu;  // … of no window

// The argument of every kernel: the same for every operation, so that executors know no algorithm. A call's first store
// waits for only one load of LocalState. So the table's entries for a store also travel as an argument, for as many
// ranks as an argument should hold.
inline constexpr std::uint32_t kInlineRanks = 8;
struct Call {
  const Channel* channel;
  LocalState* local;
  std::uint32_t fingerprint;
  std::uint32_t generation;
  std::uint32_t rank;
  std::uint32_t size;
  RegionLayout layout;
  const std::uint32_t* poison;  // the word in this rank's own window
  std::byte* region[kInlineRanks];
};

// `table` is the host's copy of the table at `channel`.
inline Call make_call(const Channel& table, const Channel* channel, std::uint32_t generation,
                      std::uint32_t fingerprint) {
  Call call{.channel = channel,
            .local = table.local,
            .fingerprint = fingerprint,
            .generation = generation,
            .rank = table.rank,
            .size = table.size,
            .layout = table.layout,
            .poison = reinterpret_cast<const std::uint32_t*>(table.window[table.world_rank] + kPoisonOffset),
            .region = {}};
  for (std::uint32_t rank = 0; rank < kInlineRanks; ++rank) call.region[rank] = table.region[rank];
  return call;
}

// `owner`: rank of the group. Without a known group size the table is read, which never changes while a window lives.
WEFT_FN std::byte* region_of(const Call& call, std::uint32_t owner) {
  // Loaded in any case: a load from either of two places would go through a pointer, no longer to an argument.
  std::byte* const near = call.region[owner % kInlineRanks];
  return owner < kInlineRanks ? near : call.channel->region[owner];
}

// Ranks take turns: in turn t rank r sends to the rank t places on, and receives from the one t places back. So not all
// ranks write to the same one at once. In turn 0 a rank serves itself. `turn` < `size`.
WEFT_FN constexpr std::uint32_t rank_after(std::uint32_t rank, std::uint32_t turn, std::uint32_t size) {
  const std::uint32_t sum = rank + turn;
  return sum < size ? sum : sum - size;
}
WEFT_FN constexpr std::uint32_t rank_before(std::uint32_t rank, std::uint32_t turn, std::uint32_t size) {
  return rank >= turn ? rank - turn : rank + size - turn;
}

// Poison: the reporter, the culprit and the code, in one word that is never zero.
static_assert(kMaxRanks <= 0x100);
WEFT_FN constexpr std::uint32_t poison_word(std::uint32_t reporter, std::uint32_t culprit, std::uint32_t code) {
  return culprit << 16 | reporter << 8 | code;
}
WEFT_FN constexpr std::uint32_t poison_reporter(std::uint32_t word) {
  return word >> 8 & 0xffu;
}
WEFT_FN constexpr std::uint32_t poison_culprit(std::uint32_t word) {
  return word >> 16;
}
WEFT_FN constexpr std::uint32_t poison_code(std::uint32_t word) {
  return word & 0xffu;
}

}  // namespace weft::detail
