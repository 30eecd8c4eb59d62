#include "sim/timed_memory.hpp"

#include <cstring>

namespace weft::sim {

using detail::Pack;

TimedMemory::TimedMemory(unsigned ranks, std::size_t window_bytes)
    : window_bytes_((window_bytes + sizeof(Pack) - 1) / sizeof(Pack) * sizeof(Pack)),
      packs_(ranks * window_bytes_ / sizeof(Pack)),
      landed_(packs_.size()) {}

const TimedMemory::Area& TimedMemory::area_of(const void* address) const {
  static constexpr Area kOther{};
  const std::size_t offset = offset_of(address) % window_bytes_;
  for (const Area& area : areas_) {
    if (area.begin <= offset && offset < area.end) return area;
  }
  return kOther;
}

double TimedMemory::weight_of(const void* address) const {
  const Area& area = area_of(address);
  if (area.step == 0) return area.weight;
  return (offset_of(address) % window_bytes_ - area.begin) % area.step < area.light ? area.light_weight : area.weight;
}

unsigned TimedMemory::owner(const void* address) const {
  const std::size_t offset = offset_of(address);
  return offset < packs_.size() * sizeof(Pack) ? static_cast<unsigned>(offset / window_bytes_) : kNobody;
}

void TimedMemory::send(double time, void* to, const void* value, unsigned bytes) {
  Store store{.time = time, .number = stores_++, .to = to, .bytes = bytes, .value = {}};
  std::memcpy(&store.value, value, bytes);
  flying_.push(store);
}

std::pair<std::size_t, double> TimedMemory::land() {
  const Store store = flying_.top();
  flying_.pop();
  std::memcpy(store.to, &store.value, store.bytes);
  note_store(store.to, store.time);
  return {place(store.to), store.time};
}

}  // namespace weft::sim
