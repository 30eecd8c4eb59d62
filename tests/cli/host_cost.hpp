// Calls whose memory is counted.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "bench/every_operation.hpp"
#include "cli/counted_memory.hpp"
#include "support/bytes.hpp"
#include "support/world.hpp"

namespace weft::test {

// Makes each call once, then often. The tag makes each call a new one for the flight recorder and for peers.
inline void expect_no_memory(const std::vector<cli::SmallCall>& calls, std::uint32_t times = 40) {
  for (const cli::SmallCall& call : calls) call.make(0);
  for (std::uint32_t tag = 1; tag <= times; ++tag) {
    for (const cli::SmallCall& call : calls) {
      const std::size_t before = taken_by_this_thread();
      call.make(tag);
      EXPECT_EQ(taken_by_this_thread() - before, 0u) << call.name;
    }
  }
}

// Zeros that stay as long as a test.
class Zeros {
 public:
  template <class T = std::byte>
  T* of(std::size_t count) {
    const std::span<std::byte> memory = all_.emplace_back(count * sizeof(T)).span();
    fill_bytes(memory, std::byte{0});
    return reinterpret_cast<T*>(memory.data());
  }

 private:
  std::vector<AlignedBytes> all_;
};

using CallsOf = std::function<std::vector<cli::SmallCall>(Communicator&, Zeros&)>;

inline void expect_no_memory_of_ranks(const Config& config, const CallsOf& calls_of) {
  for (const int ranks : {1, 2}) {
    expect_all_well(run_world(ranks, config, [&](Communicator& communicator, int) {
      Zeros zeros;
      expect_no_memory(calls_of(communicator, zeros), 6);
    }));
  }
}

}  // namespace weft::test
