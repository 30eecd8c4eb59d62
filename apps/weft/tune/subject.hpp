// The operations that `weft tune` searches: each has its sizes, its algorithms and grids, and calls of them.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tune/tuner.hpp"
#include "workloads/measure.hpp"

namespace weft::cli {

enum class TuneChoice : std::uint8_t { all, all_reduce, norm };
constexpr std::string_view name(TuneChoice choice) {
  constexpr std::string_view names[] = {"all", "all-reduce", "norm"};
  return names[static_cast<int>(choice)];
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

inline constexpr int kTuneStages = 3;

class TuneSubject {
 public:
  // The subjects of these ranks that have sizes to measure.
  static std::vector<TuneSubject> all(const Ranks& ranks, const SubjectArgs& args);

  detail::TunedOperation operation() const { return operation_; }
  std::string_view title() const;  // of tables for people: "all-reduce of bf16"
  const std::vector<std::size_t>& sizes() const { return sizes_; }
  // Those that a stage measures. A search whose time is up has measured sizes of all kinds: the first stage has every
  // fourth one, the second the middles between them.
  std::vector<std::size_t> sizes_of(int stage) const;
  const TuneSpace& space() const { return space_; }
  DataType type() const { return type_; }

  // The choice of the table in use for a size.
  TuneQuery served_now(const Ranks& ranks, std::size_t bytes) const;
  std::unique_ptr<Bench> open(Ranks& ranks) const;
  Point point(const Bench& bench, const Trial& trial) const;

 private:
  TuneSubject(const Ranks& ranks, detail::TunedOperation operation, const SubjectArgs& args);

  detail::TunedOperation operation_;
  DataType type_;
  std::vector<std::size_t> sizes_;
  TuneSpace space_;
};

}  // namespace weft::cli
