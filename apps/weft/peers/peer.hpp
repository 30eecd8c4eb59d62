// The peers of a comparison: one rank's end of NCCL or of Gloo.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/ranks.hpp"
#include "workloads/gather_shape.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// One rank's part of an exchange: bytes for each rank and of each rank, behind each other in rank order.
struct Exchange {
  const void* input = nullptr;
  void* output = nullptr;
  std::vector<std::size_t> sent = {}, received = {};
};

class Peer {
 public:
  virtual ~Peer() = default;  // collective: all ranks at once

  // The peer's contenders for `operation`; empty if the peer has no such operation.
  virtual std::vector<Contender> contenders(Operation operation) const = 0;
  // The contenders that have exchange().
  virtual std::vector<Contender> exchangers() const = 0;
  // Empty, or the reason why an expected contender is missing. All ranks get the same answer.
  virtual std::string problem() const { return {}; }
  // The memory that a contender needs; null: any memory.
  virtual void* input(Contender) const { return nullptr; }
  virtual void* output(Contender) const { return nullptr; }

  // Makes a communicator of the ranks with the same `color`, for move_in_group(). Collective. Other contenders may be
  // missing afterwards, for the reason in problem().
  virtual void split(Ranks::Seat& seat, int color) = 0;

  // Enqueues one operation. On CPU ranks it runs at once.
  virtual void all_reduce(const Point& point, const void* input, void* output, Stream stream) = 0;
  virtual void move(const GatherShape& shape, const void* input, void* output, Stream stream) = 0;
  virtual void move_in_group(const GatherShape& shape, const void* input, void* output, Stream stream) = 0;
  virtual void exchange(const Exchange& part, Stream stream) = 0;
};

// Collective. Throws if NCCL cannot serve these ranks at all. Only in a build with CUDA.
std::unique_ptr<Peer> open_nccl_peer(Ranks::Seat& seat, std::size_t max_bytes);

class GlooPeer;
std::unique_ptr<Peer> open_gloo_rank(std::shared_ptr<GlooPeer> gloo, int rank);

}  // namespace weft::cli
