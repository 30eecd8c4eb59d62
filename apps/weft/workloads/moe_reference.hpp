// The right outputs of dispatch and combine for a MoE layer's traffic, by the oracle. Checks return the first error, or
// nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "workloads/moe_traffic.hpp"

namespace weft::cli {

// An expert's result for a row; and the weighted results of one rank's experts for it, together.
oracle::Bytes expert_row(const MoeTraffic& traffic, std::uint32_t expert, std::uint32_t rank, std::uint32_t token);
oracle::Bytes joint_row(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                        std::uint32_t token);

// A row of dispatch's output, of a token of `rank`.
std::string check_row(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, const std::uint8_t* row,
                      const std::uint8_t* scales);
// Likewise payload `number` of the same token, as it has arrived.
std::string check_payload(const MoeTraffic& traffic, std::uint32_t rank, std::uint32_t token, std::size_t number,
                          const std::uint8_t* payload);
// By rank: checks a token's ids and weights on the rank that has `experts`.
std::string check_entries(const MoeTraffic& traffic, std::span<const std::uint32_t> experts, std::uint32_t rank,
                          std::uint32_t token, const std::int32_t* ids, const float* weights);
std::string check_combined(const MoeTraffic& traffic, std::uint32_t rank, const std::uint16_t* rows);

}  // namespace weft::cli
