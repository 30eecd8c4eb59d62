// Outputs of a copy in symmetric memory, which peers write to.
#pragma once

#include <cstdint>
#include <string>

#include "comm/arguments.hpp"
#include "ops/moves/move_kernels.hpp"
#include "symmetric/symmetric_state.hpp"

namespace weft::detail {

// The place of the outputs, for the words of a call; `mark` is 0 if they have no such place.
struct SymmetricWords {
  std::uint64_t memory;  // its number
  std::uint32_t mark;
  std::string text() const;  // empty if they lie in no symmetric memory
};

// The place of all outputs of a call. Ranks must agree about it, because each rank computes the others' addresses from
// its own.
class SymmetricPlace {
 public:
  explicit SymmetricPlace(const GroupState& group) : group_(&group) {}

  void add(const Extent& output);
  // All outputs lie in one symmetric memory, in whole packs.
  bool found() const { return memory_ != nullptr && !apart_; }
  // `fingerprint` of a call, combined with the place's fingerprint if there is a place.
  std::uint32_t mark(std::uint32_t fingerprint) const;
  SymmetricWords words() const;

  // The kernel for `work` in its most specialized form: for one tensor, for outputs in symmetric memory.
  template <class Partition, std::uint32_t most_tensors>
  BoundKernel serve(const CopyWork<Partition, most_tensors>& work, bool aligned16) const {
    if constexpr (most_tensors != 1 && Partition::kFirstRowKnown) {  // others have no kernels for one tensor alone
      if (work.tensors == 1) return serve(copy_as<1, false>(work), aligned16);
    }
    if (!found()) return find_kernel(CopyQuery<Partition, most_tensors>{.aligned16 = aligned16}).with(work);
    auto there = copy_as<most_tensors, true>(work);
    there.outputs = outputs();
    return find_kernel(CopyQuery<Partition, most_tensors, true>{.aligned16 = aligned16}).with(there);
  }

 private:
  SymmetricOutputs outputs() const;

  const GroupState* group_;
  const SymmetricState* memory_ = nullptr;
  bool apart_ = false;
  std::uint32_t mark_ = 0;
};

}  // namespace weft::detail
