// The id by which ranks find each other.
#pragma once

#include <array>
#include <cstddef>
#include <string>

namespace weft {

// The value that a caller distributes so that ranks find each other: made in the process of rank 0, passed unchanged to
// all. It is a secret with a random key of 32 bytes: each holder can take part (docs/reliability.md, "Trust model").
struct UniqueId {
  std::array<std::byte, 128> bytes{};

  // Makes an id whose rendezvous the calling process serves at `host`: a name or address that every rank can reach, of
  // up to 87 characters (else Errc::invalid_argument). Throws Errc::system when no port can be opened. Thread-safe.
  //
  // The process listens from then on, at that address alone, until rank 0 has used the id. An id that is never used
  // stays open until its process has made 128 more. The oldest is then useless (Errc::rendezvous).
  static UniqueId create(const std::string& host = "127.0.0.1");
};

}  // namespace weft
