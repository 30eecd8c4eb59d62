// The expected outputs of dispatch and combine for a MoE layer's traffic. Checks return the first fault, or an empty
// text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workloads/moe_traffic.hpp"

namespace weft::cli {

// `type`: bf16 or f16.
std::uint16_t narrow(RowType type, float value);

// The row that an expert is assumed to compute from a row, and the row that one rank's experts compute together, with
// their weights.
std::vector<std::uint16_t> expert_row(const MoeTraffic& traffic, std::uint32_t expert,
                                      const MoeTraffic::Arrival& arrival);
std::vector<std::uint16_t> joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts,
                                     const MoeTraffic::Arrival& arrival);

// Checks a row of dispatch's output.
std::string check_row(const MoeTraffic& traffic, const MoeTraffic::Arrival& arrival, const std::uint8_t* row,
                      const std::uint8_t* scales);
// rank_major: checks a token's ids and weights on the rank that has `experts`.
std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights);
std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows);

}  // namespace weft::cli
