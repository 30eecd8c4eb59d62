#include "rendezvous/parts.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <cstring>

#include "weft/error.hpp"

namespace weft::detail {

Bytes pack(std::span<const Bytes> parts) {
  Bytes packed;
  for (const Bytes& part : parts) {
    const std::uint64_t length = part.size();
    const auto bytes = std::as_bytes(std::span(&length, 1));
    packed.insert(packed.end(), bytes.begin(), bytes.end());
    packed.insert(packed.end(), part.begin(), part.end());
  }
  return packed;
}

std::vector<Bytes> unpack(std::string_view what, std::span<const std::byte> packed, std::size_t count) {
  const auto bad = [&](const std::string& reason) {
    return Error(Errc::rendezvous, fmt::format("rendezvous '{}': {} (another version of Weft?)", what, reason));
  };
  std::vector<Bytes> parts;
  while (parts.size() < count) {
    std::uint64_t length = 0;
    if (packed.size() < sizeof length) {
      throw bad(fmt::format("rank 0 sent the parts of {} ranks instead of {}", parts.size(), count));
    }
    std::memcpy(&length, packed.data(), sizeof length);
    packed = packed.subspan(sizeof length);
    if (length > packed.size()) {
      throw bad(fmt::format("the part of rank {} is said to have {} bytes, and {} are left of rank 0's message",
                            parts.size(), length, packed.size()));
    }
    parts.emplace_back(packed.begin(), packed.begin() + static_cast<std::ptrdiff_t>(length));
    packed = packed.subspan(length);
  }
  if (!packed.empty()) {
    throw bad(fmt::format("rank 0 sent {} bytes more than the parts of {} ranks", packed.size(), count));
  }
  return parts;
}

}  // namespace weft::detail
