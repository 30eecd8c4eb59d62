// A rank's message when it knocks at rank 0's door, and the proofs of both that they know the same secret.
//
//   rank → rank 0   hello      its rank, and a nonce;
//   rank 0 → rank   challenge  a nonce of rank 0's;
//   rank → rank 0   proof      HMAC of "rank", the hello and rank 0's nonce;
//   rank 0 → rank   welcome    HMAC of "rank 0", the same.
//
// Rank 0 proves it last, so that a mere connection gets nothing from which it could guess the secret.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/key.hpp"

namespace weft::detail {

inline constexpr std::size_t most_name = 64;  // bytes of Config::name

struct Hello {
  std::uint64_t job = 0;  // public, and different between jobs: it tells strangers apart before any proof
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
  Nonce nonce{};
  std::string name;   // Config::name
  std::string build;  // this_build()
};

Bytes to_bytes(const Hello& hello);
// Empty if these bytes are no hello.
std::optional<Hello> read_hello(std::span<const std::byte> bytes);

enum class Role : std::uint8_t { rank, rank_0 };
// `hello`: as it came over the wire; `nonce`: rank 0's.
Mac proof_of(const Key& key, Role role, std::span<const std::byte> hello, const Nonce& nonce);
// Whether `bytes` are that proof.
bool proves(std::span<const std::byte> bytes, const Mac& proof);

// "Weft 0.1.0, commit 62bfbe9c1d2f": different builds may write different formats to each other's memory.
std::string this_build();

// Throws Errc::invalid_argument if this is no name for a communicator.
void check_name(const std::string& name);

// Text of a peer that has proved nothing yet, fit for a message.
std::string printable(std::string_view text);

}  // namespace weft::detail
