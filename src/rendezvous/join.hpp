// How ranks that know a listener's address become a bootstrap.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/socket.hpp"

namespace weft::detail {

struct JoinArgs {
  std::uint64_t nonce = 0;
  int rank = 0;
  int world_size = 1;
  std::chrono::nanoseconds deadline{};
  UniqueFd listener = {};  // rank 0
  // Other ranks: where rank 0 may be; asked again for every attempt, as a name can appear late. Empty: `why` says more.
  std::function<std::vector<SocketAddress>(std::string& why)> addresses = {};
  std::string place = {};  // the same for people: "node7 port 29600"
};

// Blocks until all ranks are there. Strangers who connect are sent away; a rank that disagrees about the world ends the
// meeting on all ranks.
std::unique_ptr<Bootstrap> join(JoinArgs args);

std::uint64_t random_nonce();

}  // namespace weft::detail
