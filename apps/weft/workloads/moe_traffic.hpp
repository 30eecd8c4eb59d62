// The traffic of a MoE layer: the experts of every token, rows that every process can compute for every rank, and their
// place in dispatch's output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/models.hpp"
#include "ops/moe/exchange_shape.hpp"
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
  std::vector<std::uint16_t> rows;  // [tokens, hidden], of the exchange's type
  std::vector<std::int32_t> ids;    // [tokens, top_k]
  std::vector<float> weights;       // [tokens, top_k]; 1 if the exchange is unweighted
  std::vector<bool> kept;           // [tokens, top_k]: the expert has room for the row
};

class MoeTraffic {
 public:
  // Rows are bf16 or f16; experts are split in blocks. Throws Errc::invalid_argument for groups that the model does not
  // have.
  MoeTraffic(const ModelShape& model, const ExchangeArgs& exchange, Traffic traffic, int ranks, std::uint32_t tokens);

  const ExchangeArgs& exchange() const { return exchange_; }
  std::uint32_t token_count() const { return token_count_; }  // of each rank
  const RankTokens& tokens(std::uint32_t rank) const { return tokens_[rank]; }
  std::uint32_t home(std::int32_t expert) const { return map_.homes[static_cast<std::size_t>(expert)].rank; }

  // A row that one expert gets.
  struct Arrival {
    std::uint32_t rank, token;
    std::size_t row;  // in the output, if there is room
    bool kept;
  };
  // In the order in which they must arrive.
  const std::vector<Arrival>& arrivals(std::uint32_t expert) const { return arrivals_[expert]; }
  // expert_contiguous: the first row of each of the rank's experts, and of a next one.
  const std::vector<std::int32_t>& offsets(std::uint32_t rank) const { return offsets_[rank]; }

  // Rows that cross a link, per rank (none to the token's own rank), and the number with one row for each expert.
  double wire_rows() const { return wire_rows_; }
  double logical_rows() const { return static_cast<double>(token_count_) * exchange_.top_k; }
  // All bytes that cross a link per rank: rows with their scales or masks, records, counts and headers.
  double dispatch_wire_bytes() const;
  double combine_wire_bytes() const;

 private:
  void place_rows();

  ExchangeArgs exchange_;
  std::uint32_t ranks_, token_count_;
  detail::ExpertMap map_;
  detail::ExchangeShape shape_;
  std::vector<RankTokens> tokens_;
  std::vector<std::vector<Arrival>> arrivals_;
  std::vector<std::vector<std::int32_t>> offsets_;
  double wire_rows_ = 0;
};

}  // namespace weft::cli
