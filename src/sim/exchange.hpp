// The memory of an exchange's two channels, dispatch and combine, as regions of the simulator's windows.
#pragma once

#include <string>
#include <vector>

#include "core/channel.hpp"
#include "core/exchange_shape.hpp"
#include "sim/memory.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

class ExchangePlan {
 public:
  explicit ExchangePlan(const Setup& setup);

  const detail::ExpertMap& map() const { return map_; }
  const detail::ExchangeShape& shape(unsigned rank) const { return shapes_[rank]; }
  const detail::ExchangeLayout& layout() const { return layout_; }
  // Of dispatch (group 0) or of combine.
  detail::RegionLayout channel(unsigned group) const;
  // Says what lies where in a region that begins at byte `region`. `strict`: stores must keep the rules of slots.
  void name_region(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const;
  // Records as they are when `epoch` begins and no call before had a token.
  void age_records(std::byte* region, std::uint32_t epoch) const;
  // That calls have kept records from becoming older than a round of the tokens. Empty, or what is wrong.
  std::string check_records(Memory& memory, const std::byte* region, std::uint32_t epoch) const;

 private:
  void ignore_empty_columns(Memory& memory, unsigned rank, std::size_t rows) const;
  std::uint32_t records() const;

  unsigned ranks_;
  unsigned unit_;
  bool empty_columns_;
  detail::ExpertMap map_;
  std::vector<detail::ExchangeShape> shapes_;
  detail::ExchangeLayout layout_{};
};

}  // namespace weft::sim
