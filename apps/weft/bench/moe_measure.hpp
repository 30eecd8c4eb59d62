// Measures dispatch, combine and both on every rank, and compares each output with the traffic's reference.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/moe_rank.hpp"
#include "bench/moe_rivals.hpp"
#include "weft/moe.hpp"
#include "workloads/measure.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {

inline constexpr std::array<std::string_view, 3> kMoeOperations = {"dispatch", "combine", "both"};

// Weft with one grid.
struct MoeResult {
  std::uint32_t tokens = 0;
  Method method = Method::batch;
  Launch launch = {};
  std::vector<std::vector<double>> samples[3];  // of dispatch, combine, both: [rank][sample]
  double us[3] = {};
  double wire_rows = 0, logical_rows = 0;
  double wire_bytes[3] = {};   // per rank
  double moved_bytes[2] = {};  // by dispatch and combine in the memory of the rank that has most
  std::string wrong;
  std::string chosen = {};            // slots or ring, if a tuning table has chosen
  std::vector<MoeRival> peers = {};   // the same in all results of a number of tokens
  std::vector<MoeRival> bounds = {};  // on as many blocks
};

// A point of a report for each of dispatch, combine and both, and for each rival.
nlohmann::json to_json(const std::vector<MoeResult>& results);
// Every rival once. `peers` are those of the first result of a number of tokens.
std::vector<const MoeRival*> rivals_of(const std::vector<MoeResult>& results);

// A sentence for everything that is wrong.
std::vector<std::string> wrong_of(const std::vector<MoeResult>& results);
inline bool all_correct(const std::vector<MoeResult>& results) {
  return wrong_of(results).empty();
}

struct MoeRun {
  const MoeTraffic& traffic;
  int samples = 1;
  std::vector<Launch> launches = {{}};
};

// `apart`: sends and waits are launches of their own, one for each of the `rounds`.
struct MoeParts {
  bool apart = false;
  std::uint32_t rounds = 1;
};

class MoeMeasurement {
 public:
  MoeMeasurement(Ranks& ranks, const MoeExchangeArgs& args, MoeParts parts = {});
  ~MoeMeasurement();
  // A result for each launch, without rivals.
  std::vector<MoeResult> run(const MoeRun& run);

 private:
  Ranks& ranks_;
  MoeParts parts_;
  std::vector<std::unique_ptr<MoeRank>> opened_;
};

}  // namespace weft::cli
