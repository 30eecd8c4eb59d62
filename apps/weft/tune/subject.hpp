// The operations that `weft tune` searches: each has its sizes, its algorithms and grids, and calls of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ops/moves/move_plan.hpp"
#include "tune/tuner.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

// All, and each of detail::TunedOperation in its order.
enum class TuneChoice : std::uint8_t {
  all,
  all_reduce,
  norm,
  gather,
  scatter,
  crossing,
  normed_crossing,
  layer,
  exchange
};
constexpr std::string_view name(TuneChoice choice) {
  constexpr std::string_view names[] = {"all",      "all-reduce",      "norm",  "gather",  "scatter",
                                        "crossing", "normed-crossing", "layer", "exchange"};
  return names[static_cast<int>(choice)];
}
constexpr TuneChoice choice_of(detail::TunedOperation operation) {
  return static_cast<TuneChoice>(static_cast<int>(operation) + 1);
}

constexpr bool is_by_tokens(TuneChoice choice) {
  return choice == TuneChoice::layer || choice == TuneChoice::exchange;
}

// The group whose tables are searched.
const detail::GroupState& state_of(const Ranks& ranks);

struct SubjectArgs {
  TuneChoice operations = TuneChoice::all;
  std::string bytes = {};  // as --bytes; empty: the usual ones
  bool quick = false;
  int samples = 7;
};
// Sizes of --bytes, ascending. Throws Errc::invalid_argument.
std::vector<std::size_t> parse_tuned_bytes(const std::string& text);

// A search whose time is up has measured sizes of all kinds: the first stage has every fourth one, the second the
// middles between them, the third the rest.
inline constexpr int kTuneStages = 3;
template <class Size>
std::vector<Size> of_stage(const std::vector<Size>& sizes, int stage) {
  constexpr std::pair<std::size_t, std::size_t> kFirstAndStep[kTuneStages] = {{0, 4}, {2, 4}, {1, 2}};
  const auto [first, step] = kFirstAndStep[stage];
  std::vector<Size> all;
  for (std::size_t i = first; i < sizes.size(); i += step) all.push_back(sizes[i]);
  return all;
}

// The grids that are tried on these ranks, with threads from `least` to `most` in a block. A CPU's grid never changes.
void add_grids(TuneSpace& space, const Ranks& ranks, bool quick, int least, int most);

class TuneSubject {
 public:
  // The subjects of these ranks that have sizes to measure. Those by tokens are none of them (tune/token_search.hpp).
  static std::vector<TuneSubject> all(const Ranks& ranks, const SubjectArgs& args);

  detail::TunedOperation operation() const { return operation_; }
  bool moves() const { return kind_of(operation_).is_move(); }
  std::string_view title() const;  // of tables for people: "all-reduce of bf16"
  const std::vector<std::size_t>& sizes() const { return sizes_; }
  // For messages of `bytes`, as far as the buffers of these ranks can serve them.
  TuneSpace space(const Ranks& ranks, std::size_t bytes) const;
  DataType type() const { return type_; }

  // The table in use, or the constants as one.
  detail::TuningTable served_now(const Ranks& ranks) const;
  TuneQuery served_now(const Ranks& ranks, std::size_t bytes) const;
  std::unique_ptr<Bench> open(Ranks& ranks) const;
  // Runs a trial's calls one after the other: a crossing has two directions. The result has their time together.
  Result measure(Ranks& ranks, Bench& bench, const Trial& trial) const;

 private:
  TuneSubject(const Ranks& ranks, detail::TunedOperation operation, const SubjectArgs& args);
  bool has_one_hop(const Ranks& ranks) const;
  detail::MoveQuery move_query(const Ranks& ranks) const;
  std::vector<Point> points(const Ranks& ranks, const Trial& trial) const;

  detail::TunedOperation operation_;
  DataType type_;
  std::vector<std::size_t> sizes_;
  TuneSpace space_;
};

}  // namespace weft::cli
