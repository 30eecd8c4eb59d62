// What dispatch and combine of a MoE layer's traffic must give, of the oracle. Checks return what is wrong first, or
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workloads/moe_traffic.hpp"

namespace weft::cli {

// What an expert is taken to have made of a row; and what the experts of one rank made of it together, with its
// weights.
oracle::Bytes expert_row(const MoeTraffic& traffic, std::uint32_t expert, std::uint32_t rank, std::uint32_t token);
oracle::Bytes joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                        std::uint32_t token);

// A row of dispatch's output, of a token of `rank`.
std::string check_row(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, const std::uint8_t* row,
                      const std::uint8_t* scales);
// rank_major: checks a token's ids and weights on the rank that has `experts`.
std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights);
std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows);

}  // namespace weft::cli
