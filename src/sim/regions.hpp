// Regions of another shape than a group's, which stand in the place of the first two groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "protocol/channel.hpp"
#include "sim/memory.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

class Regions {
 public:
  virtual ~Regions() = default;

  virtual detail::RegionLayout channel(unsigned group) const = 0;
  // Says what lies where in a region that begins at byte `region`. `strict`: stores must keep the rules of slots.
  virtual void name_region(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const = 0;
  // Records as they are when `epoch` begins and no call before had a token.
  virtual void age_records(std::byte* region, std::uint32_t epoch) const = 0;
  // That calls have kept records from becoming older than a round of the tokens. Empty, or what is wrong.
  virtual std::string check_records(Memory& memory, const std::byte* region, std::uint32_t epoch) const = 0;
};

// Of a set-up with an exchange (ops/moe/sim_exchange.cpp).
std::shared_ptr<const Regions> exchange_regions(const Setup& setup);

}  // namespace weft::sim
