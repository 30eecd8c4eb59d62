// Takes counts that a caller has on the host to the memory of a group, where the kernel of the call behind it reads
// them. Calls of a group come one after the other, so nobody still reads the numbers of the call before.
#pragma once

#include <cstdint>

#include "ops/moves/numbers_work.hpp"
#include "protocol/one_rank.hpp"

namespace weft::detail {

struct WriteNumbers {
  using Work = NumbersWork;
  static constexpr int kMostThreads = 32;

  // By all threads of the only block.
  template <Team T>
  static WEFT_FN bool run(T& team, const Call& call, const NumbersWork& work) {
    if (!may_begin(team, call)) return false;
    constexpr std::uint32_t kNumbers = 2 * kMaxRanks;
    for (std::uint32_t i = team.thread_rank(); i < kNumbers; i += team.size()) work.to->number[i] = work.from.number[i];
    return true;
  }
};

}  // namespace weft::detail
