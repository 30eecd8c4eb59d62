// A team: threads that share work, and the only door to memory that other ranks see.
//
// Algorithms are function templates over a team and know nothing else about their executor. An executor provides:
//   thread_rank(), size()   this thread's place in its block, and the number of threads (a constant 1 on the CPU).
//   kLeastThreads           No block has fewer threads.
//   kMostBlocks             No launch has more blocks.
//   block_rank(), blocks()  this block's place in the grid.
//   sync()                  barrier of the block's threads.
//   all(good)               the same; true when `good` was true for every thread.
//   kLanes                  threads of a warp: neighbours in a block that run together and can look at each other's
//                           values; every block is a multiple of it. All lanes of a warp make the next six calls.
//   all_lanes(good)         whether it is true in all lanes.
//   max_of(value, lanes)    the largest value of `lanes` neighbours (a power of two; neighbours begin at multiples).
//   sum_of(value, lanes)    their sum; floats are added in one order everywhere: neighbours, then neighbouring pairs, …
//   most_of(value)          the largest u32 of any lane.
//   or_of(value)            bits that are set in any lane.
//   from_lane(value, lane)  the value of one lane of the warp.
//   share(i, word)          ordinary store to word i of the kSharedWords words of 8 bytes that the threads of a block
//                           share for one launch.
//   shared(i)               ordinary load: this thread's last store, or another one's before the last sync().
//   store(address, value)   relaxed store to memory that other ranks may read: a Pack, or a word of 4 or 8 bytes.
//   load(address)           relaxed load of the same.
//   store_release(address)  a word store that publishes everything this block wrote before its last sync().
//   load_acquire(address)   a word load: data published with the word can be read; after a sync() by all of the block.
//   put(address, pack)      ordinary store to memory that other ranks read after a word was released and acquired.
//   get(address)            ordinary load of the same.
//   kMulticast              whether packs are summed over all ranks, and stored to all, on their way. If so, there are:
//     load_sum<type>(address)   relaxed load of the sum of all ranks' data there, each in its own window.
//     store_all(address, pack)  relaxed store to all of them.
//     fence_alias()             orders these two, which use their own addresses, and accesses to the same memory.
//   kPacksAhead             ordinary loads that a thread should have under way; 1 if the processor sees to it.
//   scratch()               kScratchWords floats that the block's threads share, ordered by sync() and all().
//   sync_lanes()            barrier of a warp's lanes, for one of them to publish what all have stored.
//   tally()                 kTallyWords counters that the block's threads share, ordered by sync() and all().
//   add(counter)            adds one to such a counter; other threads may do so, too.
//   prefetch(address, n)    brings n bytes nearer to the processor; both are multiples of 16.
//   exchange(address, v)    atomic exchange of a word in memory of this rank.
//   now()                   nanoseconds of a steady clock.
//   settle(value)           computes this value here and not later, whatever the optimiser would do.
//   relax(spins)            called in every turn of a waiting loop.
//   dead_peer()             world rank of a peer whose process is gone, or −1.
//
// A staged team also copies in bulk, and beside its threads (TMA on GPUs). Its warps have stages of kStagePlaces places
// with kStageBytes bytes, that only a warp's lanes share. All addresses and numbers of bytes are multiples of 16.
//   begin_stage()           by all lanes, in front of the other calls of a launch.
//   staged<Word>(place, i)  ordinary load of word i of a place: a Pack, or 4 bytes.
//   stage(place, i, word)   ordinary store to it.
//   load_bulk(place, address, n)   by all lanes: begins to copy memory of this rank to the beginning of a place.
//   await_load(place)       by all lanes, once for each load_bulk(): the place has it. No other load_bulk() before.
//   store_bulk(address, place, n, from = 0)  by one lane: begins to copy n bytes of a place, from byte `from` on, to
//                           memory that other ranks may read.
//   commit_stores()         ends a group of this lane's store_bulk().
//   await_reads<n>()        all groups of this lane but the last n have read their places: they may be written again.
//   await_stores<n>()       all groups of this lane but the last n are done: its next release publishes them.
//   fence_stage()           by a lane that has stored to a place; then sync_lanes() and a store_bulk() of any lane.
//   fence_bulk()            by all lanes between an acquire and a copy of what it has made known, or to where it
//   allows. end_stage()             by all lanes, before the launch ends: waits for all copies, which read and write
//   stages. kPieceBytes             of a row, that algorithms put into a place at once; a place may hold more.
// A load into a place that lanes have read needs sync_lanes() alone: their loads have ended by then.
//
// A Pack travels in atomic units of kAtomicBytes: a reader sees each unit whole or not at all. Units of one store may
// arrive in any order and at any distance. Everything a call wrote happens before everything that the same rank's next
// call sends (kernel boundary on the GPU, a fence in the CPU executor).
#pragma once

#include <concepts>
#include <cstdint>

#include "base/function.hpp"
#include "base/pack.hpp"

namespace weft::detail {

inline constexpr std::uint32_t kSharedWords = 160;
inline constexpr std::uint32_t kMostTallyWords = 1024;
// A block's warp groups (team/cuda_warp_group.cuh): one, or as many as it has this many threads.
inline constexpr std::uint32_t kWarpGroupThreads = 128, kMostWarpGroups = 768 / kWarpGroupThreads;

// The places of a warp's stage on GPUs, and bytes of each: a piece of a row. An algorithm may have a kGpuStage of its
// own. With the barriers of loads, kGpuStageOfWarp bytes hold any of them.
struct GpuStage {
  std::uint32_t places = 4, bytes = 2048;
};
inline constexpr std::uint32_t kGpuStageOfWarp = GpuStage().places * GpuStage().bytes + 128;

template <class T>
concept Team = requires(T& team, Pack* pack, const Pack* const_pack, std::uint64_t* word64, std::uint32_t* word32) {
  { T::kAtomicBytes } -> std::convertible_to<int>;
  { T::kLeastThreads } -> std::convertible_to<std::uint32_t>;
  { T::kMostBlocks } -> std::convertible_to<std::uint32_t>;
  { T::kSpinsPerCheck } -> std::convertible_to<std::uint32_t>;
  { T::kMulticast } -> std::convertible_to<bool>;
  { team.thread_rank() } -> std::convertible_to<std::uint32_t>;
  { team.size() } -> std::convertible_to<std::uint32_t>;
  { team.block_rank() } -> std::convertible_to<std::uint32_t>;
  { team.blocks() } -> std::convertible_to<std::uint32_t>;
  team.sync();
  { team.all(bool{}) } -> std::same_as<bool>;
  team.put(pack, Pack{});
  { team.get(const_pack) } -> std::same_as<Pack>;
  { T::kPacksAhead } -> std::convertible_to<std::uint32_t>;
  { T::kLanes } -> std::convertible_to<std::uint32_t>;
  { team.all_lanes(bool{}) } -> std::same_as<bool>;
  { team.max_of(float{}, std::uint32_t{}) } -> std::same_as<float>;
  { team.sum_of(std::uint32_t{}, std::uint32_t{}) } -> std::same_as<std::uint32_t>;
  { team.sum_of(float{}, std::uint32_t{}) } -> std::same_as<float>;
  { T::kScratchWords } -> std::convertible_to<std::uint32_t>;
  { team.scratch() } -> std::same_as<float*>;
  { T::kTallyWords } -> std::convertible_to<std::uint32_t>;
  { team.tally() } -> std::same_as<std::uint32_t*>;
  team.prefetch(pack, std::uint32_t{});
  team.add(word32);
  team.sync_lanes();
  { team.most_of(std::uint32_t{}) } -> std::same_as<std::uint32_t>;
  { team.or_of(std::uint32_t{}) } -> std::same_as<std::uint32_t>;
  { team.from_lane(std::uint32_t{}, std::uint32_t{}) } -> std::same_as<std::uint32_t>;
  team.share(std::uint32_t{}, std::uint64_t{});
  { team.shared(std::uint32_t{}) } -> std::same_as<std::uint64_t>;
  team.store(pack, Pack{});
  { team.load(const_pack) } -> std::same_as<Pack>;
  team.store(word64, std::uint64_t{});
  { team.load(word64) } -> std::same_as<std::uint64_t>;
  team.store(word32, std::uint32_t{});
  team.store_release(word32, std::uint32_t{});
  team.store_release(word64, std::uint64_t{});
  { team.load_acquire(word64) } -> std::same_as<std::uint64_t>;
  { team.load(word32) } -> std::same_as<std::uint32_t>;
  { team.exchange(word32, std::uint32_t{}) } -> std::same_as<std::uint32_t>;
  { team.now() } -> std::same_as<std::uint64_t>;
  team.settle(pack);
  team.settle(*word64);
  team.relax(std::uint32_t{});
  { team.dead_peer() } -> std::convertible_to<int>;
};

template <class T>
concept StagedTeam = Team<T> && requires(T& team, Pack* pack, std::uint32_t place) {
  { T::kStagePlaces } -> std::convertible_to<std::uint32_t>;
  { T::kStageBytes } -> std::convertible_to<std::uint32_t>;
  { T::kPieceBytes } -> std::convertible_to<std::uint32_t>;
  team.begin_stage();
  { team.template staged<Pack>(place, place) } -> std::same_as<Pack>;
  { team.template staged<std::uint32_t>(place, place) } -> std::same_as<std::uint32_t>;
  team.stage(place, place, Pack{});
  team.stage(place, place, std::uint32_t{});
  team.load_bulk(place, pack, std::uint32_t{});
  team.await_load(place);
  team.store_bulk(pack, place, std::uint32_t{});
  team.store_bulk(pack, place, std::uint32_t{}, std::uint32_t{});
  team.commit_stores();
  team.template await_reads<1>();
  team.template await_stores<0>();
  team.fence_stage();
  team.fence_bulk();
  team.end_stage();
};

}  // namespace weft::detail
