// Outputs of a copy that lie in symmetric memory, where peers write to them.
#pragma once

#include <cstdint>
#include <string>

#include "comm/call.hpp"
#include "comm/symmetric_state.hpp"
#include "core/operation.hpp"

namespace weft::detail {

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
  // In words, for the call's name; empty where there is none.
  std::string text() const;

  // `operation`, or the same for outputs in symmetric memory.
  template <class Shares, std::uint32_t most_tensors>
  MoveOperation serve(const CopyOperation<Shares, most_tensors>& operation) const {
    if (!found()) return operation;
    CopyOperation<Shares, most_tensors, true> there{};
    there.whole = operation.whole;
    there.work.shares = operation.work.shares;
    there.work.line_packs = operation.work.line_packs;
    there.work.tensors = operation.work.tensors;
    for (std::uint32_t t = 0; t < most_tensors; ++t) there.work.tensor[t] = operation.work.tensor[t];
    there.work.outputs = outputs();
    return there;
  }

 private:
  SymmetricOutputs outputs() const;

  const GroupState* group_;
  const SymmetricState* memory_ = nullptr;
  bool apart_ = false;
  std::uint32_t mark_ = 0;
};

}  // namespace weft::detail
