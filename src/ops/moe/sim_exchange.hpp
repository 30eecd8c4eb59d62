// The memory of an exchange's two channels, dispatch and combine, as regions of the simulator's windows.
#pragma once

#include <string>
#include <vector>

#include "ops/moe/exchange_shape.hpp"
#include "protocol/channel.hpp"
#include "sim/memory.hpp"
#include "sim/regions.hpp"
#include "sim/setup.hpp"

namespace weft::sim {

class ExchangePlan final : public Regions {
 public:
  explicit ExchangePlan(const Setup& setup);

  const detail::ExpertMap& map() const { return map_; }
  const detail::ExchangeShape& shape(unsigned rank) const { return shapes_[rank]; }
  const detail::ExchangeLayout& layout() const { return layout_; }
  // The channel of dispatch (group 0) or of combine.
  detail::RegionLayout channel(unsigned group) const override;
  void name_region(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const override;
  void age(std::byte* region, unsigned group, std::uint32_t epoch) const override;
  std::string check_ages(Memory& memory, const std::byte* region, unsigned group, std::uint32_t epoch) const override;

 private:
  void name_ring(Memory& memory, unsigned group, unsigned rank, std::size_t region, bool strict) const;
  void ignore_empty_columns(Memory& memory, unsigned rank, std::size_t rows) const;
  std::uint32_t renewed(unsigned group) const;  // records, or weights
  std::uint32_t tokens_renewed(unsigned group) const;
  template <class Check>
  void each_renewed_count(Check check) const;
  static std::uint32_t banks_renewed(unsigned group) { return group == 0 ? detail::kBanks : 1; }

  unsigned ranks_;
  unsigned unit_;
  bool empty_columns_;
  bool in_rounds_, repeats_;
  detail::ExpertMap map_;
  std::vector<detail::ExchangeShape> shapes_;
  detail::ExchangeLayout layout_{};
};

}  // namespace weft::sim
