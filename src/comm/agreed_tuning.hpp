// Rank 0's tuning tables, as they travel to the other ranks.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tuning/tuning.hpp"

namespace weft::detail {

struct AgreedTuning {
  std::string processor;  // rank 0's, of up to 59 characters
  std::vector<TuningTable> tables;
};

std::string to_bytes(const AgreedTuning& tuning);
// Throws Errc::rendezvous where the bytes are no such thing, or mean other tables here than where they come from.
AgreedTuning agreed_tuning(std::span<const std::byte> bytes);

}  // namespace weft::detail
