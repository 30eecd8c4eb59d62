// What a MoE layer sends: whose tokens choose which experts, rows that every process can make for every rank, and what
// dispatch and combine must then give.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

// uniform: any top_k experts. grouped: DeepSeek's choice of topk_group of n_group groups first. zipf: expert number n
// is chosen with weight 1 / n (in an order of its own). hot: every token chooses expert 0.
enum class Traffic : std::uint8_t { uniform, grouped, zipf, hot };

constexpr std::string_view name(Traffic traffic) {
  constexpr std::string_view names[] = {"uniform", "grouped", "zipf", "hot"};
  return names[static_cast<int>(traffic)];
}

// How rows are sent to the experts.
constexpr std::string_view cast_name(RowCast cast) {
  return cast == RowCast::none ? "bf16" : "fp8";
}

struct RankTokens {
  std::vector<std::uint16_t> rows;  // bf16 [tokens, hidden]
  std::vector<std::int32_t> ids;    // [tokens, top_k]
  std::vector<float> weights;
};

class MoeTraffic {
 public:
  MoeTraffic(const ModelShape& model, const ExchangeArgs& exchange, Traffic traffic, int ranks, std::uint32_t tokens);

  const RankTokens& tokens(int rank) const { return tokens_[static_cast<std::size_t>(rank)]; }

  // One expert's row, and what the expert is taken to have made of it.
  struct Arrival {
    std::uint32_t rank, token;
    float weight;
  };
  const std::vector<Arrival>& arrivals(std::uint32_t expert) const { return arrivals_[expert]; }
  std::vector<std::uint16_t> expert_row(std::uint32_t expert, const Arrival& arrival) const;

  // What experts of one rank are taken to have made of a token together, with its weights.
  std::vector<std::uint16_t> joint_row(std::span<const std::uint32_t> experts, const Arrival& arrival) const;

  // Rows that cross a link (the token's own rank left out), per rank; and what they would be, one for each expert.
  double wire_rows() const { return wire_rows_; }
  double logical_rows() const { return static_cast<double>(token_count_) * exchange_.top_k; }

  // Empty, or the first thing that is wrong.
  std::string check_count(std::uint32_t expert, std::int32_t count) const;
  std::string check_row(std::uint32_t expert, std::size_t place, const std::uint8_t* got,
                        const std::uint8_t* scales) const;
  std::string check_combined(int rank, const std::uint16_t* rows) const;

 private:
  std::size_t home(std::int32_t expert) const;

  ExchangeArgs exchange_;
  int ranks_;
  std::uint32_t token_count_;
  std::vector<RankTokens> tokens_;
  std::vector<std::vector<Arrival>> arrivals_;
  double wire_rows_ = 0;
};

}  // namespace weft::cli
