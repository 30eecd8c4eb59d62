// What all ranks bring to a meeting, as one run of bytes: of each part its length, and then itself.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

Bytes pack(std::span<const Bytes> parts);

// The `count` parts of the meeting `what`. Lengths come from the wire: where there are more or fewer parts, or one that
// claims more than is left, it throws Errc::rendezvous.
std::vector<Bytes> unpack(std::string_view what, std::span<const std::byte> packed, std::size_t count);

}  // namespace weft::detail
