// Places in streams, one for each group: behind its last call, if streams are ordered (Config::order_streams), or
// behind the rejection that a rank has told there (comm/rejection.hpp). A call of the group on another stream comes
// behind it.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <mutex>

#include "fabric/fabric.hpp"

namespace weft::detail {

// Threads may call for different groups at once. The group's device is current.
class StreamMarks {
 public:
  StreamMarks() = default;
  StreamMarks(const StreamMarks&) = delete;
  StreamMarks& operator=(const StreamMarks&) = delete;
  ~StreamMarks();

  // The end of everything that `stream` has now. Replaces the group's mark.
  void set(int group, cudaStream_t stream);
  // Everything that `stream` gets from now on waits for the group's mark. Does nothing if there is none.
  void follow(int group, cudaStream_t stream) const;

 private:
  mutable std::mutex mutex_;
  struct Mark {
    cudaEvent_t event = nullptr;
    cudaStream_t stream = nullptr;
  };
  std::array<Mark, kMaxChannels> marks_;  // of each channel; one without an event has no mark
};

}  // namespace weft::detail
