// The secret that ranks prove to each other without telling it. The cryptography is libsodium's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace weft::detail {

using Key = std::array<std::byte, 32>;    // a secret; all zero: none
using Mac = std::array<std::byte, 32>;    // HMAC-SHA-256
using Nonce = std::array<std::byte, 32>;  // used once, public

// From the system's random numbers. Errc::system if there are none.
Key random_key();
Nonce random_nonce();

// The key for a text of any length.
Key key_of(std::string_view text);

// A public number that tells whether two ranks have the same key, and nothing about it.
std::uint64_t job_of(const Key& key);

// HMAC of the parts and their lengths.
Mac mac_of(const Key& key, std::initializer_list<std::span<const std::byte>> parts);

// The time taken does not tell where the two differ.
bool same(const Mac& one, const Mac& other);
bool is_none(const Key& key);

}  // namespace weft::detail
