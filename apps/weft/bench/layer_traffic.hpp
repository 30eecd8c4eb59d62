// Tokens of a layer's benchmark: real ones, or those that a rank of a larger expert parallelism would see.
#pragma once

#include <cstdint>
#include <vector>

#include "gemm/grouped_gemm.hpp"
#include "ops/moe/exchange.hpp"

namespace weft::cli {

struct LayerShape {
  std::uint32_t hidden = 0, intermediate = 0;
  std::uint32_t experts = 0, top_k = 0;  // of the model
  std::uint32_t ranks = 1;               // that run
  std::uint32_t emulated = 0;            // ranks of the expert parallelism that they stand for; 0: as many as run
  std::uint32_t shared = 0;              // columns of the shared expert's middle; 0: there is none
  GemmType type = GemmType::fp8;         // of rows, dispatched too, and weights

  std::uint32_t local() const { return experts / (emulated != 0 ? emulated : ranks); }
  std::uint32_t exchanged_experts() const { return local() * ranks; }
  // The mean, if each rank of the parallelism has so many tokens. Their experts are drawn evenly.
  double rows_per_expert(std::uint32_t tokens) const { return static_cast<double>(tokens) * top_k / local(); }
};

// One rank's tokens, as an exchange among the ranks that run takes them.
//
// Emulated, each token draws distinct experts of the whole model. For each rank that owns some of them there is one
// virtual token: its ids are that rank's, and it goes to the own half if the owner is this rank, else to the peer's. So
// rows out and in, rows per expert, and bytes are those of a rank of the larger parallelism. The owner of a token adds
// up the rows of its virtual tokens. One peer stands for all others, so what their number costs is not seen.
struct LayerTokens {
  std::vector<std::int32_t> ids;      // [virtual tokens, top_k]
  std::vector<float> weights;         // likewise
  std::vector<std::int32_t> sources;  // [virtual tokens]: the real token
  std::vector<std::int32_t> firsts;   // [tokens + 1]: its first virtual token
  std::uint32_t count() const { return static_cast<std::uint32_t>(sources.size()); }
};
LayerTokens make_layer_tokens(const LayerShape& shape, std::uint32_t rank, std::uint32_t tokens, std::uint32_t layer);

// A division of a rank's experts into rounds.
struct LayerRounds {
  std::uint32_t rounds = 1;
  std::vector<std::uint32_t> experts = {};  // of each round; empty: as even as possible

  auto operator<=>(const LayerRounds&) const = default;
};
detail::Rounds divided(const LayerShape& shape, const LayerRounds& division);

// All rows of a dispatch; those that its first round needs; or those whose sums only the last round of combine ends.
enum class SomeRows : std::uint8_t { all, first, last };
// The tokens' ids, with −1 for those of other rows. `rounds`: of a rank's experts.
std::vector<std::int32_t> ids_of_rows(const LayerShape& shape, const LayerTokens& tokens, SomeRows rows,
                                      const detail::Rounds& rounds);
// The tokens' ids of one round's experts, with −1 for the others.
std::vector<std::int32_t> ids_of_round(const LayerShape& shape, const LayerTokens& tokens,
                                       const detail::ExpertRange& experts);

}  // namespace weft::cli
