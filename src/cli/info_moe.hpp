// What the experts of a model take on each rank.
#pragma once

#include <cstdint>
#include <string>

#include "table.hpp"

namespace weft::cli {

// Dispatch and combine: receive buffers of one bank. Throws Errc::invalid_argument for a model without experts.
Table moe_memory_table(const std::string& model, int ranks, std::uint32_t tokens);

}  // namespace weft::cli
