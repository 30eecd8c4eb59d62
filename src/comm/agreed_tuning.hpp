// Rank 0's tuning tables, in the form in which they travel to the other ranks.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tuning/tuning.hpp"

namespace weft::detail {

struct AgreedTuning {
  Processor processor;  // rank 0's, with a name of up to 59 characters
  std::vector<TuningTable> tables;
};

std::string to_bytes(const AgreedTuning& tuning);
// Throws Errc::rendezvous if the bytes are no such tables, or mean other tables here than on rank 0.
AgreedTuning agreed_tuning(std::span<const std::byte> bytes);

}  // namespace weft::detail
