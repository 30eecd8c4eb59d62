// Four ranks, each a thread of this process, send tokens to experts and get the sums of their results back. No GPU is
// needed. README.md shows what is between the two marks.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <weft/weft.hpp>

#include "local_ranks.hpp"

constexpr std::uint32_t ranks = 4, tokens = 16, hidden = 64, experts = 8, top_k = 2;

struct Layer {
  std::vector<std::uint16_t> x, y;       // [tokens, hidden] in bf16: what goes in, what comes out
  std::vector<std::int32_t> topk_ids;    // [tokens, top_k]
  std::vector<float> topk_weights;       // [tokens, top_k]
  std::vector<std::uint16_t> rows, out;  // [local experts, capacity, hidden]
  std::vector<std::int32_t> counts;      // [local experts]: rows of each expert
  weft::Stream stream = nullptr;         // CPU ranks have none
};

// The experts' GEMMs, had they weights: here each returns its rows as they are.
void grouped_gemm(const weft::MoeExchange& exchange, Layer& layer) {
  const std::size_t block = std::size_t{exchange.capacity()} * hidden;
  for (std::size_t expert = 0; expert < layer.counts.size(); ++expert)
    std::memcpy(&layer.out[expert * block], &layer.rows[expert * block],
                static_cast<std::size_t>(layer.counts[expert]) * hidden * sizeof(std::uint16_t));
}

// begin: README.md
void run_experts(const weft::MoeExchange& exchange, Layer& layer) {
  weft::DispatchArgs dispatch{.input = layer.x.data(), .topk_ids = layer.topk_ids.data()};
  dispatch.topk_weights = layer.topk_weights.data();
  dispatch.tokens = tokens;
  dispatch.output = layer.rows.data();    // [local experts, capacity, hidden]
  dispatch.counts = layer.counts.data();  // rows of each local expert
  dispatch.stream = layer.stream;
  const weft::DispatchHandle handle = exchange.dispatch(dispatch);

  grouped_gemm(exchange, layer);  // yours, from `rows` to `out`

  // Each token's owner gets the weighted sum of its experts' results.
  exchange.combine({.handle = handle, .input = layer.out.data(), .output = layer.y.data(), .stream = layer.stream});
}
// end: README.md

bool run_rank(const weft::Communicator& world) {
  const weft::MoeExchange exchange =
      weft::MoeExchange::create(world, {.tokens = tokens, .hidden = hidden, .experts = experts, .top_k = top_k});
  Layer layer;
  for (std::uint32_t token = 0; token < tokens; ++token) {
    layer.x.insert(layer.x.end(), hidden, static_cast<std::uint16_t>(0x3f80 + token));  // 1, and a little more
    const auto first = static_cast<std::int32_t>((token + static_cast<std::uint32_t>(world.rank())) % experts);
    layer.topk_ids.insert(layer.topk_ids.end(), {first, (first + 3) % static_cast<std::int32_t>(experts)});
    layer.topk_weights.insert(layer.topk_weights.end(), {0.5f, 0.5f});
  }
  layer.y.resize(layer.x.size());
  layer.rows.resize(exchange.output_rows() * hidden);
  layer.out.resize(layer.rows.size());
  layer.counts.resize(exchange.local_experts());

  run_experts(exchange, layer);
  return layer.y == layer.x;  // half of what two experts each return, bit for bit
}

int main() {
  if (!right_on_every_rank(ranks, run_rank)) return EXIT_FAILURE;
  std::printf("%u ranks, %u tokens each: every token came back\n", ranks, tokens);
}
