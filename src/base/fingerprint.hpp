// Thirty-two bits that differ when two ranks' calls differ.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace weft::detail {

// FNV-1a over the operation's name and every value that defines the exchange, mixed at the end (splitmix64) so that
// neighbouring counts differ in all bits.
template <class... Values>
constexpr std::uint32_t fingerprint(std::string_view operation, Values... values) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto eat = [&](std::uint64_t value) { hash = (hash ^ value) * 0x100000001b3u; };
  for (const char letter : operation) eat(static_cast<unsigned char>(letter));
  const auto eat_value = [&](auto value) {
    const auto bits = static_cast<std::uint64_t>(value);
    eat(bits & 0xffffffffu);
    eat(bits >> 32);
  };
  (eat_value(values), ...);
  hash = (hash ^ hash >> 30) * 0xbf58476d1ce4e5b9u;
  hash = (hash ^ hash >> 27) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(hash ^ hash >> 31);
}

}  // namespace weft::detail
