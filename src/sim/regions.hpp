// Regions that have another shape than a group's, in the place of the first two groups.
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
  // Names the contents of a region that begins at byte `region`. `strict`: stores must keep the rules of slots.
  virtual void name_region(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const = 0;
  // Puts what calls renew in turn into its state at the begin of `epoch`, if no earlier call had a token.
  virtual void age(std::byte* region, unsigned group, std::uint32_t epoch) const = 0;
  // Checks that calls have kept it from becoming older than a round of the tokens. Empty, or the fault.
  virtual std::string check_ages(Memory& memory, const std::byte* region, unsigned group,
                                 std::uint32_t epoch) const = 0;
};

// Regions of a set-up with an exchange (ops/moe/sim_exchange.cpp).
std::shared_ptr<const Regions> exchange_regions(const Setup& setup);

}  // namespace weft::sim
