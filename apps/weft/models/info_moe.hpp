// The memory that a model's experts take on each rank.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "common/table.hpp"
#include "models/models.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

// The type of the rows that are sent to experts.
constexpr std::string_view cast_name(RowCast cast) {
  return cast == RowCast::none ? "bf16" : "fp8";
}

// Bytes on each rank if rows are sent as `cast`.
struct MoeMemory {
  RowCast cast = RowCast::none;
  MoeExchangeMemory exchange = {};  // its output is the masked layout's
  std::size_t contiguous = 0, rank_major = 0;
  // Computed for the same layer: DeepEP, and NCCL EP expert-major and rank-major.
  std::size_t deepep = 0, nccl_ep = 0, nccl_ep_by_rank = 0;
};

// The model must have experts.
std::vector<MoeMemory> moe_memory(const ModelShape& shape, int ranks, std::uint32_t tokens);

// For dispatch and combine: the receive buffers of one bank.
Table moe_memory_table(const std::vector<MoeMemory>& casts);
std::string to_csv(const std::vector<MoeMemory>& casts);
nlohmann::json to_json(const std::vector<MoeMemory>& casts);
// Without the output, since its layout is the caller's choice.
nlohmann::json to_json(const MoeExchangeMemory& memory);

}  // namespace weft::cli
