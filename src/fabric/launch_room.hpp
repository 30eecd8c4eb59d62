// The most blocks of a launch on a GPU. They wait for each other, so all must be there at once.
#pragma once

#include <mutex>

namespace weft::detail {

class LaunchRoom {
 public:
  // Loads every kernel, so that no call does. `processors`: of the device, which is the current one.
  void open(int device, int processors);
  // So many ranks use the device. Each has a call there, and the next one is brought up behind it.
  void share(int ranks);

  int blocks() const { return blocks_; }
  // The most in clusters of two: an even number. The first question takes milliseconds, since it asks about all
  // kernels.
  int paired_blocks() const;

 private:
  int device_ = 0, blocks_ = 2, parts_ = 1;
  mutable std::once_flag asked_;
  mutable int pairs_ = 0;
};

}  // namespace weft::detail
