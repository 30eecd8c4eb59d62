// The right results of a MoE layer's dispatch and combine, by the oracle. Checks return what is wrong first, or
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workloads/moe_traffic.hpp"

namespace weft::cli {

// The row that an expert is taken to have made of a token; and the sum that the experts of one rank made of it, with
// its weights.
oracle::Bytes expert_row(const MoeTraffic& traffic, std::uint32_t expert, std::uint32_t rank, std::uint32_t token);
oracle::Bytes joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                        std::uint32_t token);

// A row of dispatch's output, of a token of `rank`.
std::string check_row(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, const std::uint8_t* row,
                      const std::uint8_t* scales);
// rank_major: ids and weights of a token as the rank that has `experts` gets them.
std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights);
std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows);

}  // namespace weft::cli
