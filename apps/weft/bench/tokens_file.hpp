// The tokens and experts of a benchmark as a file, from which bench/rivals.py has other libraries move the same.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace weft::cli {

// A rival's run must have the same.
struct TokensShape {
  std::string command;  // "bench moe"
  std::string routing;
  std::string dispatched;                     // rows that are sent to experts: "fp8" or "bf16"
  std::int64_t hidden = 0, intermediate = 0;  // the latter of experts; 0: there are none
  std::int64_t experts = 0, top_k = 0;
  int ranks = 0;
};
nlohmann::json to_json(const TokensShape& shape);

// One rank's choices for one layer, [tokens, top_k] each.
struct RoutedRank {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
// A number of tokens of each rank. Benchmarks that stream weights have several layers, which come in turn.
struct RoutedTokens {
  std::uint32_t tokens = 0;
  std::vector<std::vector<RoutedRank>> layers;  // [layer][rank]
};

// 16 digits that differ if any id does: FNV-1a over the schema's name and all ids, as they come.
std::string digest_of(const RoutedTokens& tokens);

inline constexpr std::string_view kTokensSchema = "weft-tokens-1";
// {"schema", "of": the shape, "model", "points": [{"tokens", "digest", "layers": [[{"ids", "weights"}]]}]}.
std::string tokens_file(const TokensShape& shape, std::string_view model, const std::vector<RoutedTokens>& points);

}  // namespace weft::cli
