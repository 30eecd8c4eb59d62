// The most threads in a block of an algorithm: its registers decide.
#pragma once

#include <cstdint>

namespace weft::detail {

// Threads per block that the registers of the instance allow.
constexpr int max_threads(std::uint32_t known_size) {
  return known_size >= 1 && known_size <= 4 ? 1024 : 512;
}

template <class A>
constexpr int max_threads_of() {
  if constexpr (requires { A::kMostThreads; }) {
    return A::kMostThreads;
  } else {
    return max_threads(A::kSize);
  }
}
template <class A>
constexpr int kMaxThreads = max_threads_of<A>();

// Whether copies in bulk serve it.
template <class A>
constexpr bool kIsStaged = requires {
  requires A::kStaged;
};

// A local operation of one rank is no call of the protocol, and has no phases.
template <class A>
constexpr bool kIsOneRanks = !requires {
  A::kPhases;
};

}  // namespace weft::detail
