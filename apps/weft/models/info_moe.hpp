// weft info --moe: the memory that a model's experts take on each rank, one row for each way to exchange tokens.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <vector>

#include "common/table.hpp"
#include "models/models.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

// Bytes on each rank.
struct MoeWay {
  std::string_view name;
  RowLayout layout;            // of dispatch's output
  RowCast cast;                // of the rows that are sent
  MoeExchangeMemory exchange;  // Weft's parts; others do not divide their buffers so, and have 0
  std::size_t buffers = 0;     // all that the library takes
  std::size_t output = 0;      // the caller's, of dispatch: rows and scales, and ids and weights by rank
};

struct MoeWaysArgs {
  int ranks = 8;
  std::uint32_t tokens = 128;                      // most of one rank in one dispatch
  std::optional<RowLayout> layout = std::nullopt;  // all
  std::optional<RowCast> cast = std::nullopt;      // fp8, if the model's rows can be cast, and none
};

// Weft's layouts, then the others, for each cast. The model must have experts. Throws Errc::invalid_argument.
std::vector<MoeWay> moe_ways(const ModelShape& model, const MoeWaysArgs& args);

Table moe_table(const std::vector<MoeWay>& ways);
// The meaning of the columns, and the sources of the others' numbers.
extern const char* const kMoeLegend;
std::string to_csv(const std::vector<MoeWay>& ways);
nlohmann::json to_json(const std::vector<MoeWay>& ways);
// Without the output, since its layout is the caller's choice.
nlohmann::json to_json(const MoeExchangeMemory& memory);

}  // namespace weft::cli
