// What Weft is measured beside: one rank's end of NCCL or of Gloo.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "workloads/gather_shape.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

class Peer {
 public:
  virtual ~Peer() = default;  // collective: all ranks at once

  // Who can do it; none where this peer has no such operation.
  virtual std::vector<Contender> contenders(Operation operation) const = 0;
  // Empty, or why a contender that one might expect is missing; the same answer on every rank.
  virtual std::string problem() const { return {}; }
  // The memory that a contender works in; null: any.
  virtual void* input(Contender) const { return nullptr; }
  virtual void* output(Contender) const { return nullptr; }

  // Enqueue one operation; on CPU ranks do it.
  virtual void all_reduce(const Point& point, const void* input, void* output, Stream stream) = 0;
  virtual void move(const GatherShape& shape, const void* input, void* output, Stream stream) = 0;
};

// Collective. Throws when NCCL cannot serve these ranks at all; only in a build with CUDA.
std::unique_ptr<Peer> open_nccl_peer(Ranks::Seat& seat, std::size_t max_bytes);

class GlooPeer;
std::unique_ptr<Peer> open_gloo_rank(std::shared_ptr<GlooPeer> gloo, int rank);

}  // namespace weft::cli
