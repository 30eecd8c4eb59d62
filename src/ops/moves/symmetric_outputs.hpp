// Outputs of a copy that lie in symmetric memory, where peers write to them.
#pragma once

#include <cstdint>
#include <string>

#include "comm/arguments.hpp"
#include "ops/moves/move_kernels.hpp"
#include "symmetric/symmetric_state.hpp"

namespace weft::detail {

// Where they lie, for the words of a call; `mark` is 0 where they do not.
struct SymmetricWords {
  std::uint64_t memory;  // its number
  std::uint32_t mark;
  std::string text() const;  // empty where they lie in none
};

// Where all outputs of a call lie. Ranks must agree about it, as each writes to the others' by what it knows of its
// own.
class SymmetricPlace {
 public:
  explicit SymmetricPlace(const GroupState& group) : group_(&group) {}

  void add(const Extent& output);
  // They lie in one symmetric memory, in whole packs.
  bool found() const { return memory_ != nullptr && !apart_; }
  // `fingerprint` of a call, with that of the place, where there is one.
  std::uint32_t mark(std::uint32_t fingerprint) const;
  SymmetricWords words() const;

  // The kernel for `work`, which gets the leanest form of it: for one tensor, for outputs in symmetric memory.
  template <class Shares, std::uint32_t most_tensors>
  BoundKernel serve(const CopyWork<Shares, most_tensors>& work, bool whole) const {
    if constexpr (most_tensors != 1) {
      if (work.tensors == 1) return serve(copy_as<1, false>(work), whole);
    }
    if (!found()) return find_kernel(CopyQuery<Shares, most_tensors>{.whole = whole}).with(work);
    auto there = copy_as<most_tensors, true>(work);
    there.outputs = outputs();
    return find_kernel(CopyQuery<Shares, most_tensors, true>{.whole = whole}).with(there);
  }

 private:
  SymmetricOutputs outputs() const;

  const GroupState* group_;
  const SymmetricState* memory_ = nullptr;
  bool apart_ = false;
  std::uint32_t mark_ = 0;
};

}  // namespace weft::detail
