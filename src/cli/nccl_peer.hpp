// NCCL, the peer of the GPU path: one rank's communicator, plain and on symmetric windows.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <string>

#include "measure.hpp"
#include "ranks.hpp"

namespace weft::cli {

class NcclPeer {
 public:
  // Collective. Throws when NCCL cannot serve these ranks at all.
  NcclPeer(Ranks::Seat& seat, std::size_t max_bytes);
  // Collective as well: all ranks at once.
  ~NcclPeer();
  NcclPeer(const NcclPeer&) = delete;
  NcclPeer& operator=(const NcclPeer&) = delete;

  // Empty, or why there are no symmetric windows; the same answer on every rank.
  const std::string& symmetric_problem() const { return symmetric_problem_; }
  void* symmetric_input() const { return buffers_[0]; }
  void* symmetric_output() const { return buffers_[1]; }

  void all_reduce(const Point& point, const void* input, void* output, Stream stream);

 private:
  void open_windows(Ranks::Seat& seat, std::size_t max_bytes);

  ncclComm_t comm_ = nullptr;
  void* buffers_[2] = {};
  ncclWindow_t windows_[2] = {};
  std::string symmetric_problem_;
};

}  // namespace weft::cli
