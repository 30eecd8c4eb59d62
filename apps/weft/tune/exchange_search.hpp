// The search of `weft tune` for exchanges of experts: slots or a ring, and the grids of dispatch and combine, for each
// number of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "bench/moe_rank.hpp"
#include "models/models.hpp"
#include "tune/token_search.hpp"
#include "tune/tuner.hpp"

namespace weft::cli {

using TunedExchange = TunedTokens<detail::ExchangeStep>;

// The query of a search: tokens of each rank, the step that serves them now, and what is tried.
struct ExchangeQuery {
  std::uint32_t tokens = 0;
  detail::ExchangeStep present = {};
  std::vector<RowPath> paths = {};
  TuneSpace grids = {};  // of dispatch, and of combine
};
// µs of a dispatch with its combine, which go one way; null: the present choice. Turns count from 1.
using ExchangeTime = std::function<double(const detail::ExchangeStep* step, int samples, int turn)>;
// Each way that may win gets its best grid of dispatch, then of combine. The fastest takes turns with the present one.
TunedExchange tune_exchange(const ExchangeQuery& query, const ExchangeTime& time);

// As token_steps_of(), with slots in front of the ring. If measured tokens disagree, the way changes there where the
// fewest lose the one that they chose. Unmeasured tokens yield first.
std::vector<detail::ExchangeStep> exchange_steps_of(std::vector<TunedExchange> tuned,
                                                    std::span<const detail::ExchangeStep> base);

class ExchangeSearch : public ExchangeSteps {
 public:
  struct Args {
    ModelShape model = {};
    RowLayout layout = RowLayout::expert_masked;
    RowCast cast = RowCast::fp8;
    std::vector<std::uint32_t> tokens = {};  // ascending
    bool quick = false;
    int samples = 7;
  };
  ExchangeSearch(Ranks& ranks, const Args& args);

  detail::TuningTable table() const override;
  std::string size_json() const override;
  void tune(Progress& progress, TuneState& known, std::uint32_t tokens) override;

 private:
  Words words() const override;
  std::string step_in_words(const detail::ExchangeStep& step) const override;
  std::vector<detail::ExchangeStep> steps_now() const override;
  std::vector<detail::ExchangeStep> steps_of(const std::vector<TunedExchange>& tuned,
                                             std::span<const detail::ExchangeStep> base) const override {
    return exchange_steps_of(tuned, base);
  }
  Result measure(const Trial& trial, const detail::ExchangeStep& step);

  Args args_;
  MoeExchangeArgs automatic_;                     // as a caller makes the exchange
  std::optional<MoeTraffic> traffic_;             // whose tensors the ranks have
  std::vector<std::unique_ptr<MoeRank>> opened_;  // by local index
};

}  // namespace weft::cli
