// The options of `weft tune` for layers and exchanges of experts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "models/model_choice.hpp"
#include "tune/subject.hpp"
#include "tune/token_search.hpp"

namespace CLI {
class App;
}

namespace weft::cli {

using TokenSearches = std::vector<std::unique_ptr<TokenSearch>>;

struct TokenOptions {
  ModelChoice model;
  std::string tokens;
  std::int64_t intermediate = 0;                // of layers
  std::uint32_t emulated = 0;                   // likewise
  RowPath path = RowPath::automatic;            // likewise
  RowLayout layout = RowLayout::expert_masked;  // of exchanges
  std::string row;                              // likewise; empty: as usual

  void add_to(CLI::App& app);
  // Throws Errc::invalid_argument before anything is started.
  void check(const SubjectArgs& subjects) const;
  // The searches that are asked for. Without a model there are neither layers nor exchanges.
  TokenSearches open(Ranks& ranks, const SubjectArgs& subjects) const;
};

}  // namespace weft::cli
