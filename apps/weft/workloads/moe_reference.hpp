// What dispatch and combine of a MoE layer's traffic must give. Checks return what is wrong first, or nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workloads/moe_traffic.hpp"

namespace weft::cli {

// Of bf16 or f16.
std::uint16_t narrow(RowType type, float value);

// What an expert is taken to have made of a row; and what the experts of one rank made of it together, with its
// weights.
std::vector<std::uint16_t> expert_row(const MoeTraffic& traffic, std::uint32_t expert,
                                      const MoeTraffic::Arrival& arrival);
std::vector<std::uint16_t> joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts,
                                     const MoeTraffic::Arrival& arrival);

// A row of dispatch's output.
std::string check_row(const MoeTraffic& traffic, const MoeTraffic::Arrival& arrival, const std::uint8_t* row,
                      const std::uint8_t* scales);
// rank_major: ids and weights of a token as the rank that has `experts` gets them.
std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights);
std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows);

}  // namespace weft::cli
