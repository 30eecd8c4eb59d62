// Streams beside a caller's: forked from it, and joined to it again.
#pragma once

#include <memory>

#include "weft/types.hpp"

namespace weft::detail {

// On CPU ranks there are none, as every call has ended when it returns.
class SideStreams {
 public:
  static constexpr int kCount = 3;
  virtual ~SideStreams() = default;
  virtual Stream stream(int number) const {
    static_cast<void>(number);
    return nullptr;
  }
  // The work that `behind` gets from now on comes behind all that `before` has got.
  virtual void order(Stream before, Stream behind) const { static_cast<void>(before), static_cast<void>(behind); }
};

// `cuda_device`: −1 on CPU ranks.
std::unique_ptr<SideStreams> make_side_streams(int cuda_device);

}  // namespace weft::detail
