// Ranks on hand-made windows whose slots are more than 4 GiB apart, in address space without memory.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "protocol/channel.hpp"
#include "support/bytes.hpp"

namespace weft::test {

// Memory whose pages appear when touched.
class Sparse {
 public:
  explicit Sparse(std::size_t bytes)
      : bytes_(bytes),
        memory_(::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
    if (memory_ == MAP_FAILED) throw std::runtime_error("no address space");
    ::madvise(memory_, bytes, MADV_NOHUGEPAGE);  // so that touched() can tell single pages
  }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  ~Sparse() { ::munmap(memory_, bytes_); }

  std::byte* data() const { return static_cast<std::byte*>(memory_); }
  // Whether any page between two addresses was read or written. The first address is rounded up.
  static bool touched(const std::byte* begin, const std::byte* end) {
    constexpr std::size_t page = 4096;
    const std::size_t skip = (page - reinterpret_cast<std::uintptr_t>(begin) % page) % page;
    const std::size_t bytes = static_cast<std::size_t>(end - begin) - skip;
    std::vector<unsigned char> resident((bytes + page - 1) / page);
    if (::mincore(const_cast<std::byte*>(begin) + skip, bytes, resident.data()) != 0) {
      throw std::runtime_error("mincore");
    }
    if (all_bytes_are(std::as_bytes(std::span(resident)), std::byte{0})) return false;
    return std::ranges::any_of(resident, [](unsigned char state) { return (state & 1) != 0; });
  }

 private:
  std::size_t bytes_;
  void* memory_;
};

struct FarRank {
  static constexpr std::uint32_t kSize = 3, kGeneration = 1;
  // Cut to 32 bits, the k-th sender's slot would begin k MiB behind the first sender's.
  static constexpr std::uint64_t kSlotBytes = (1ull << 32) + (1u << 20);
  static constexpr detail::PipelineShape kPipeline{.slots = 2, .packs = kSlotBytes / sizeof(detail::Pack)};
  static constexpr std::uint64_t kArmedPacks = 64;  // of every slot; tests use no other packs

  FarRank(std::uint32_t rank, std::uint64_t deadline_ns)
      : layout(detail::make_layout(kSize, kSlotBytes, kSlotBytes * kSize, kPipeline)),
        memory(detail::kWindowHeaderBytes + layout.bytes) {
    channel.rank = channel.world_rank = rank;
    channel.size = channel.world_size = kSize;
    channel.deadline_ns = deadline_ns;
    channel.layout = layout;
    channel.local = &local;
    channel.claim = claim;
    channel.abort = &abort;
    channel.record = record;
    local.admit(kGeneration);
    local.begin_at(1);
    for (std::uint32_t slot = 0; slot < detail::kBanks * kSize; ++slot) {
      for (const auto& [area, packs] : {std::pair{layout.one_shot, layout.one_shot_packs},
                                        {layout.scatter, layout.two_shot_packs},
                                        {layout.gather, layout.two_shot_packs}}) {
        std::memset(region() + area + slot * packs * sizeof(detail::Pack), 0xff, kArmedPacks * sizeof(detail::Pack));
      }
    }
  }

  std::byte* region() const { return memory.data() + detail::kWindowHeaderBytes; }
  detail::Call call(std::uint32_t fingerprint) { return make_call(channel, &channel, kGeneration, fingerprint); }
  // Whether anything between the first two slots of an area was touched. Nothing lies there. Offsets cut to 32 bits
  // would lead there, counted from the region or from the area.
  bool strayed() const {
    constexpr std::size_t near = kArmedPacks * sizeof(detail::Pack);
    const std::uint64_t areas[] = {layout.one_shot, layout.scatter, layout.gather, layout.pipeline_scatter,
                                   layout.pipeline_gather};
    return std::ranges::any_of(areas, [&](std::uint64_t area) {
      return Sparse::touched(region() + area + near, region() + area + (kSlotBytes - 4096));
    });
  }

  detail::RegionLayout layout;
  Sparse memory;
  detail::Channel channel{};
  detail::LocalState local{};
  detail::FaultRecord record[detail::kFaultKinds] = {};
  std::uint32_t claim[detail::kFaultKinds] = {}, abort = 0;
};

inline std::vector<std::unique_ptr<FarRank>> far_ranks(std::uint64_t deadline_ns) {
  std::vector<std::unique_ptr<FarRank>> ranks;
  for (std::uint32_t rank = 0; rank < FarRank::kSize; ++rank) {
    ranks.push_back(std::make_unique<FarRank>(rank, deadline_ns));
  }
  for (auto& rank : ranks) {
    for (std::uint32_t peer = 0; peer < FarRank::kSize; ++peer) {
      rank->channel.member[peer] = peer;
      rank->channel.window[peer] = ranks[peer]->memory.data();
      rank->channel.region[peer] = ranks[peer]->region();
    }
  }
  return ranks;
}

}  // namespace weft::test
