// All ranks' contributions to a meeting as one run of bytes: each part's length, then the part.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

Bytes pack(std::span<const Bytes> parts);

// The `count` parts of the meeting `what`. Lengths come from the wire. Throws Errc::rendezvous if there are more or
// fewer parts, or if one claims more bytes than are left.
std::vector<Bytes> unpack(std::string_view what, std::span<const std::byte> packed, std::size_t count);

}  // namespace weft::detail
