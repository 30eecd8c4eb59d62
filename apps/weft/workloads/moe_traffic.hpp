// The traffic of a MoE layer: the experts of every token, rows that every process can compute for every rank, and their
// place in dispatch's output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/models.hpp"
#include "ops/moe/exchange_shape.hpp"
#include "oracle/moe.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

// uniform: any top_k experts. grouped: DeepSeek's choice of topk_group of n_group groups first. zipf: expert number n
// has weight 1 / n, where n is not the expert's id. hot: every token chooses expert 0.
enum class Traffic : std::uint8_t { uniform, grouped, zipf, hot };

constexpr std::string_view name(Traffic traffic) {
  constexpr std::string_view names[] = {"uniform", "grouped", "zipf", "hot"};
  return names[static_cast<int>(traffic)];
}

struct RankTokens {
  std::vector<std::uint16_t> rows;               // [tokens, hidden], of the exchange's type
  std::vector<std::int32_t> ids;                 // [tokens, top_k]
  std::vector<float> weights;                    // likewise; 1 where the exchange is unweighted
  std::vector<std::vector<std::byte>> payloads;  // [tokens, bytes] of each of the exchange's payload_bytes
};

// A row of dispatch's output, with its scales and payloads.
std::size_t placed_row_bytes(const MoeExchangeArgs& exchange);

class MoeTraffic {
 public:
  // Rows are bf16 or f16; experts are split in blocks. Throws Errc::invalid_argument for groups that the model does not
  // have.
  MoeTraffic(const ModelShape& model, const MoeExchangeArgs& exchange, Traffic traffic, int ranks,
             std::uint32_t tokens);

  const MoeExchangeArgs& exchange() const { return exchange_; }
  std::uint32_t token_count() const { return token_count_; }  // of each rank
  const RankTokens& tokens(std::uint32_t rank) const { return tokens_[rank]; }

  // As the oracle says: the rank that holds an expert, the tokens that come to it, and the places of their rows; and a
  // rank's experts.
  const std::vector<std::uint32_t>& homes() const { return homes_; }
  const oracle::Routing& routing() const { return routing_; }
  const std::vector<oracle::ExpertRows>& placed() const { return placed_; }
  const std::vector<std::uint32_t>& experts(std::uint32_t rank) const { return experts_[rank]; }
  // expert_contiguous: where the experts of a rank begin; last, where the next one would.
  std::vector<std::int32_t> offsets(std::uint32_t rank) const;
  // rank_compact: in row i and column j, how many rows the ranks 0 … i have for rank j.
  std::vector<std::int32_t> rank_prefix() const;

  // Rows that cross a link, per rank (none to the token's own rank), and the number with one row for each expert.
  double wire_rows() const { return wire_rows_; }
  double logical_rows() const { return static_cast<double>(token_count_) * exchange_.top_k; }
  // All bytes that cross a link per rank: rows with their scales, payloads or masks, records, counts and headers.
  double dispatch_wire_bytes() const;
  double combine_wire_bytes() const;
  // Tokens of `from` that have an expert on `to`, which may be `from` itself.
  std::size_t tokens_sent(std::uint32_t from, std::uint32_t to) const { return sent_[std::size_t{from} * ranks_ + to]; }
  // Bytes that every implementation reads and writes in the memory of the rank that has most. dispatch: tokens are
  // read and placed rows written, with their scales and payloads; combine: experts' rows are read and combined ones
  // written.
  double dispatch_moved_bytes() const;
  double combine_moved_bytes() const;

 private:
  MoeExchangeArgs exchange_;
  std::uint32_t ranks_, token_count_;
  detail::ExchangeShape shape_;
  std::vector<RankTokens> tokens_;
  std::vector<std::uint32_t> homes_;
  std::vector<std::vector<std::uint32_t>> experts_;  // of each rank
  oracle::Routing routing_;
  std::vector<oracle::ExpertRows> placed_;
  std::size_t most_placed_rows() const;  // of any rank

  double wire_rows_ = 0;
  std::vector<std::size_t> sent_;  // [from][to]
};

}  // namespace weft::cli
