// One small call of every operation, on a rank's own memory, for tests of a property that all operations share.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/rank_device.hpp"
#include "weft/communicator.hpp"
#include "weft/moe.hpp"

namespace weft::cli {

struct SmallCall {
  std::string name;
  // `tag` is the same number on every rank.
  std::function<void(std::uint32_t tag)> make;
};

// Collective, since it makes an exchange. Keeps references to both arguments.
class EveryOperation {
 public:
  EveryOperation(const Communicator& communicator, RankDevice& device);

  // Make the calls in this order: a combine takes the handle of the dispatch before it.
  const std::vector<SmallCall>& calls() const { return calls_; }

 private:
  void* filled(std::size_t bytes);
  std::int32_t* numbers(const std::vector<std::int32_t>& values);
  void add_sums();
  void add_copies();
  void add_messages();
  void add_ragged();
  void add_exchange();

  const Communicator& communicator_;
  RankDevice& device_;
  std::size_t ranks_;
  MoeExchange exchange_;
  DispatchHandle handle_;
  std::vector<SmallCall> calls_;
};

}  // namespace weft::cli
