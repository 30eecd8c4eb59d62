#include "rendezvous/key.hpp"

#include <sodium.h>

#include <cstring>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

static_assert(std::tuple_size_v<Key> == crypto_auth_hmacsha256_KEYBYTES);
static_assert(std::tuple_size_v<Mac> == crypto_auth_hmacsha256_BYTES);

template <class Bytes>
auto* raw(Bytes& bytes) {
  if constexpr (std::is_const_v<Bytes>) return reinterpret_cast<const unsigned char*>(bytes.data());
  if constexpr (!std::is_const_v<Bytes>) return reinterpret_cast<unsigned char*>(bytes.data());
}

std::array<std::byte, 32> random_bytes() {
  static const bool ready = ::sodium_init() >= 0;
  if (!ready) throw Error(Errc::system, "no random numbers: libsodium cannot be initialised");
  std::array<std::byte, 32> bytes;
  ::randombytes_buf(bytes.data(), bytes.size());
  return bytes;
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

Key random_key() {
  return random_bytes();
}

Nonce random_nonce() {
  return random_bytes();
}

Key key_of(std::string_view text) {
  // The key is public: it only keeps this use apart from other texts.
  const Key domain{std::byte{'w'}, std::byte{'e'}, std::byte{'f'}, std::byte{'t'}};
  return mac_of(domain, {bytes_of("secret"), bytes_of(text)});
}

std::uint64_t job_of(const Key& key) {
  const Mac mac = mac_of(key, {bytes_of("job")});
  std::uint64_t job = 0;
  std::memcpy(&job, mac.data(), sizeof(job));
  return job;
}

Mac mac_of(const Key& key, std::initializer_list<std::span<const std::byte>> parts) {
  crypto_auth_hmacsha256_state state;
  ::crypto_auth_hmacsha256_init(&state, raw(key), key.size());
  for (const std::span<const std::byte>& part : parts) {
    const std::array<std::uint64_t, 1> length{part.size()};
    ::crypto_auth_hmacsha256_update(&state, raw(length), sizeof(length));
    ::crypto_auth_hmacsha256_update(&state, raw(part), part.size());
  }
  Mac mac;
  ::crypto_auth_hmacsha256_final(&state, raw(mac));
  return mac;
}

bool same(const Mac& one, const Mac& other) {
  return ::sodium_memcmp(one.data(), other.data(), one.size()) == 0;
}

bool is_none(const Key& key) {
  return ::sodium_is_zero(raw(key), key.size()) == 1;
}

}  // namespace weft::detail
