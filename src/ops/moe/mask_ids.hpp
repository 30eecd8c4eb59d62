// The ids that follow from a mask of ranks (DispatchArgs::rank_mask), for the dispatch behind it. Dispatch reads ids
// alone, so that its kernels are the same for both. Other ranks do not matter.
#pragma once

#include <cstdint>

#include "kernel/instances.hpp"
#include "ops/moe/moe_kernels.hpp"
#include "protocol/one_rank.hpp"

namespace weft::detail {

struct MaskIds {
  using Work = MaskIdsWork;
  static constexpr int kMostThreads = 512;

  // By all threads of all blocks. False: the call has failed.
  template <Team T>
  static WEFT_FN bool run(T& team, const Call& call, const Work& work) {
    if (!may_begin(team, call)) return false;
    const std::uint32_t entries = work.tokens * work.ranks, step = team.blocks() * team.size();
    for (std::uint32_t i = team.block_rank() * team.size() + team.thread_rank(); i < entries; i += step) {
      work.ids[i] = work.mask[i] != 0 ? static_cast<std::int32_t>(i % work.ranks) : -1;
    }
    return true;
  }
};

struct MaskFamily {
  using List = Instances<Instance<MaskIds, MaskIdsQuery{}>>;
};

}  // namespace weft::detail
