// Thirty-two bits that differ when two ranks' calls differ.
#pragma once

#include <cstdint>
#include <string_view>
#include <type_traits>

namespace weft::detail {

// FNV-1a of an operation's name; the compiler computes it for a literal.
class NameHash {
 public:
  consteval NameHash(const char* name) : NameHash(std::string_view(name)) {}
  constexpr explicit NameHash(std::string_view name) {
    for (const char letter : name) eat(static_cast<unsigned char>(letter));
  }
  constexpr void eat(std::uint64_t value) { hash_ = (hash_ ^ value) * 0x100000001b3u; }
  constexpr std::uint64_t value() const { return hash_; }

 private:
  std::uint64_t hash_ = 0xcbf29ce484222325u;
};

// FNV-1a over the operation's name and every value that defines the exchange, mixed at the end (splitmix64) so that
// neighbouring counts differ in all bits.
template <class... Values>
constexpr std::uint32_t fingerprint(NameHash hash, Values... values) {
  (hash.eat(static_cast<std::uint64_t>(values)), ...);
  std::uint64_t mixed = hash.value();
  mixed = (mixed ^ mixed >> 30) * 0xbf58476d1ce4e5b9u;
  mixed = (mixed ^ mixed >> 27) * 0x94d049bb133111ebu;
  return static_cast<std::uint32_t>(mixed ^ mixed >> 31);
}

}  // namespace weft::detail
