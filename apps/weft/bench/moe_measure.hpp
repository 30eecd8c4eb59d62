// Measures dispatch, combine and both on every rank, and compares each output with the traffic's reference.
#pragma once

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/moe_rank.hpp"
#include "weft/moe.hpp"
#include "workloads/measure.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {

inline constexpr std::array<std::string_view, 3> kMoeOperations = {"dispatch", "combine", "both"};

// One line of the table.
struct MoeResult {
  std::uint32_t tokens = 0;
  Method method = Method::batch;
  Launch launch = {};
  std::vector<std::vector<double>> samples[3];  // of dispatch, combine, both: [rank][sample]
  double us[3] = {};
  double wire_rows = 0, logical_rows = 0;
  double wire_bytes[3] = {};  // per rank
  std::string wrong;
};

// A point of a report for each of dispatch, combine and both.
nlohmann::json to_json(const std::vector<MoeResult>& results);
bool all_correct(const std::vector<MoeResult>& results);

class MoeMeasurement {
 public:
  // `apart`: sends and waits are launches of their own.
  MoeMeasurement(Ranks& ranks, const MoeExchangeArgs& args, bool apart = false);
  ~MoeMeasurement();
  MoeResult run(const MoeTraffic& traffic, std::uint32_t tokens, int samples, Launch launch);

 private:
  Ranks& ranks_;
  bool apart_;
  std::vector<std::unique_ptr<MoeRank>> opened_;
};

}  // namespace weft::cli
