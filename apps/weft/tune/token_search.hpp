// The searches of `weft tune` whose tables have steps by tokens of a rank.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/progress.hpp"
#include "common/ranks.hpp"
#include "common/table.hpp"
#include "tune/tune_state.hpp"
#include "tuning/exchange_file.hpp"
#include "tuning/layer_file.hpp"
#include "tuning/tuning.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// The choice for a number of tokens.
template <class Step>
struct TunedTokens {
  std::uint32_t tokens = 0;
  Step step = {};
  Figure time = {}, before = {};  // as TunedSize has them
  bool as_before = false;
};

// The fastest way of a search takes turns with the present one, which stays unless it is slower by more than their
// spread. `fastest`: its step and its time in µs. `time(of_fastest, samples, turn)`; turns count from 1.
template <class Step>
TunedTokens<Step> against_present(TunedTokens<Step> fastest, const Step& present, int samples,
                                  const std::function<double(bool, int, int)>& time);

// `tuned` must ascend, and is not empty. Boundaries are round numbers near the middle. Fewer tokens than the least and
// more than the most keep their steps of `base`.
template <class Step>
std::vector<Step> token_steps_of(const std::vector<TunedTokens<Step>>& tuned, std::span<const Step> base);

// Whether a trial was right on all ranks. `wrong`: what is wrong on this one, or nothing. Collective.
bool right_on_all(Ranks::Seat& seat, const std::string& wrong);
// The first rank that has something wrong names it.
std::string first_wrong(const std::vector<std::string>& of_ranks);

// Such a search as `weft tune` runs it.
class TokenSearch {
 public:
  TokenSearch(Ranks& ranks, std::vector<std::uint32_t> tokens) : ranks_(ranks), tokens_(std::move(tokens)) {}
  virtual ~TokenSearch() = default;

  const std::vector<std::uint32_t>& tokens() const { return tokens_; }  // ascending
  bool measured() const { return measured_; }
  // Its processor, ranks, operation and size.
  virtual detail::TuningTable table() const = 0;
  // The keys of the size, as files have them.
  virtual std::string size_json() const = 0;
  virtual void tune(Progress& progress, TuneState& known, std::uint32_t tokens) = 0;
  virtual bool has_tuned() const = 0;
  virtual RowPath path() const { return RowPath::automatic; }
  // More words of its table's note.
  virtual std::string remark() const { return {}; }
  // Throws Errc::invalid_argument if the table could exceed the most steps of a table. `replaced`: the table in whose
  // place it comes, or null.
  virtual void check_steps(const detail::TuningTable* replaced) const = 0;
  // The table with the choices so far. Tokens that are left keep their steps of `replaced`, else those in use.
  virtual detail::TuningTable made(const detail::TuningTable* replaced) const = 0;
  virtual void print(const detail::TuningTable& made) const = 0;

 protected:
  Ranks& ranks() const { return ranks_; }
  detail::Processor processor() const;
  // A number of tokens that is searched.
  struct Session {
    Progress& progress;
    TuneState& known;
    std::uint32_t tokens;
  };
  // µs of the step with these words, or of the present one without words. `measure` runs a trial that is not known.
  double time(const Session& session, std::string step, int samples, int turn,
              const std::function<Result(const Trial&)>& measure);

 private:
  Ranks& ranks_;
  std::vector<std::uint32_t> tokens_;
  bool measured_ = false;
};

// `kSteps`: where a table has its steps.
template <class Step, std::vector<Step> detail::TuningTable::*kSteps>
class StepSearch : public TokenSearch {
 public:
  using TokenSearch::TokenSearch;

  bool has_tuned() const override { return !tuned_.empty(); }
  void check_steps(const detail::TuningTable* replaced) const override;
  detail::TuningTable made(const detail::TuningTable* replaced) const override;
  void print(const detail::TuningTable& made) const override;

 protected:
  struct Words {
    std::string heading;
    std::string_view column;   // of the table for people: "schedule"
    std::string_view nothing;  // said if all stays as before
  };
  virtual Words words() const = 0;
  virtual std::string step_in_words(const Step& step) const = 0;
  double time(const Session& session, const Step* step, int samples, int turn,
              const std::function<Result(const Trial&)>& measure) {
    return TokenSearch::time(session, step != nullptr ? to_json(*step) : "", samples, turn, measure);
  }
  // The steps of the table in use, or what serves without one.
  virtual std::vector<Step> steps_now() const = 0;
  virtual std::vector<Step> steps_of(const std::vector<TunedTokens<Step>>& tuned, std::span<const Step> base) const {
    return token_steps_of(tuned, base);
  }

  std::map<std::uint32_t, TunedTokens<Step>> tuned_;

 private:
  std::vector<Step> base(const detail::TuningTable* replaced) const {
    return replaced != nullptr ? replaced->*kSteps : steps_now();
  }
};

using LayerSteps = StepSearch<detail::LayerStep, &detail::TuningTable::layer_steps>;
using ExchangeSteps = StepSearch<detail::ExchangeStep, &detail::TuningTable::exchange_steps>;

}  // namespace weft::cli
