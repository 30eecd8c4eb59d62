// The columns beside Weft's dispatch and combine: peers that move the same tokens, and the parts of the bound.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/moe.hpp"
#include "workloads/measure.hpp"
#include "workloads/moe_traffic.hpp"

namespace weft::cli {

// One cell. Its point's operation tells how the peer does it.
struct MoeRival {
  std::size_t operation = 0;  // of kMoeOperations
  Result result = {};
  double wire_bytes = 0;   // that cross the links, per rank
  double moved_bytes = 0;  // a copy: bytes read and written
};

// "NCCL AG/RS", "NCCL symm. A2A", "plain push": the column.
std::string name(const MoeRival& rival);

// The least time of any implementation: the larger of the push's, and of the bytes to be moved at the copy's rate.
// 0 if a part is missing or wrong.
double bound_us(const std::vector<MoeRival>& rivals, std::size_t operation, double moved_bytes);
// Bytes read and written per µs.
double copy_rate(const MoeRival& copy);
// A dispatched row as peers move it: with its scales behind it, in whole packs.
std::size_t peer_row_bytes(const MoeExchangeArgs& args);

// Bytes of a buffer that holds each rank's input, or all that comes to a rank, of any of these columns.
std::size_t rival_room(int ranks, const MoeExchangeArgs& args);

// Collective, like Bench.
class MoeRivals {
 public:
  virtual ~MoeRivals() = default;
  // Operations of these peers do not depend on Weft's grid.
  virtual std::vector<MoeRival> peers(const MoeTraffic& traffic, int samples) = 0;
  // On as many blocks as Weft has; 0: one for each processor.
  virtual std::vector<MoeRival> bounds(const MoeTraffic& traffic, int samples, int blocks) = 0;
  // A sentence for each column that is missing.
  virtual std::vector<std::string> notes() const = 0;
};
// `args`: of the exchange with most tokens that will be compared.
std::unique_ptr<MoeRivals> open_moe_rivals(Ranks& ranks, const MoeExchangeArgs& args);

}  // namespace weft::cli
