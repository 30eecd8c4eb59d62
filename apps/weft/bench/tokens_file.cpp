#include "bench/tokens_file.hpp"

#include <fmt/format.h>

#include "base/fingerprint.hpp"

namespace weft::cli {

nlohmann::json to_json(const TokensShape& shape) {
  return {{"command", shape.command},
          {"routing", shape.routing},
          {"dispatched", shape.dispatched},
          {"hidden", shape.hidden},
          {"intermediate", shape.intermediate},
          {"experts", shape.experts},
          {"top_k", shape.top_k},
          {"ranks", shape.ranks}};
}

std::string digest_of(const RoutedTokens& tokens) {
  detail::NameHash hash(kTokensSchema);
  for (const auto& layer : tokens.layers) {
    for (const RoutedRank& rank : layer) {
      for (const std::int32_t id : rank.ids) hash.eat(static_cast<std::uint32_t>(id));
    }
  }
  return fmt::format("{:016x}", hash.value());
}

std::string tokens_file(const TokensShape& shape, std::string_view model, const std::vector<RoutedTokens>& points) {
  nlohmann::json all = nlohmann::json::array();
  for (const RoutedTokens& point : points) {
    nlohmann::json layers = nlohmann::json::array();
    for (const auto& layer : point.layers) {
      nlohmann::json ranks = nlohmann::json::array();
      for (const RoutedRank& rank : layer) ranks.push_back({{"ids", rank.ids}, {"weights", rank.weights}});
      layers.push_back(std::move(ranks));
    }
    all.push_back({{"tokens", point.tokens}, {"digest", digest_of(point)}, {"layers", std::move(layers)}});
  }
  const nlohmann::json file = {
      {"schema", kTokensSchema}, {"of", to_json(shape)}, {"model", model}, {"points", std::move(all)}};
  return file.dump() + "\n";
}

}  // namespace weft::cli
