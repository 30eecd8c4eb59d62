// Calls whose tensors keep their address while their contents change, for CPU ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "support/normed_crossings.hpp"
#include "weft/communicator.hpp"

namespace weft::test {

inline constexpr std::uint32_t kChanges = 5;  // contents that a call's tensors take in turn

template <class What>
std::uint32_t& seed_of(What& what) {
  return what.seed;
}
inline std::uint32_t& seed_of(NormedCrossing& what) {
  return what.norm.seed;
}
template <class What>
What with_seed(What what, std::uint32_t seed) {
  seed_of(what) = seed;
  return what;
}

// `What`: a call by its seed. `Host`: a rank's memory for it.
template <class What, class Host>
class Changing {
 public:
  Changing(What what, const Group& group) {
    const std::uint32_t first = seed_of(what) * kChanges;
    for (std::uint32_t k = 0; k < kChanges; ++k)
      contents_.push_back(prepare(with_seed(what, first + k), group.size(), group.rank()));
    host_.emplace(contents_[0]);
  }
  void fill(std::uint32_t turn) { host_->fill(contents_[turn % kChanges]); }
  void call(const Group& group) { host_->call(group); }
  void check(std::uint32_t turn) { host_->check(contents_[turn % kChanges]); }

 private:
  using Prepared = decltype(prepare(What{}, 1, 0));
  std::vector<Prepared> contents_;
  std::optional<Host> host_;
};

}  // namespace weft::test
