// Turns ranks that know a listener's address, and a secret, into a bootstrap.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/desk.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/key.hpp"
#include "rendezvous/socket.hpp"

namespace weft::detail {

struct JoinArgs {
  std::uint64_t job = 0;
  Key key{};                    // of all ranks; there is no meeting without one
  std::string key_source = {};  // for people: "WEFT_SECRET"
  std::string name = {};        // Config::name
  std::string build = this_build();
  int rank = 0;
  int world_size = 1;
  std::chrono::nanoseconds deadline{};
  Desk::Args desk = {};     // rank 0, if there are others
  std::string remark = {};  // rank 0: added to the error if ranks do not come
  // Other ranks: possible addresses of rank 0; asked again for every attempt, as a name can appear late. Empty: `why`
  // says more.
  std::function<std::vector<SocketAddress>(std::string& why)> addresses = {};
  std::string place = {};  // the same for people: "node7 port 29600"
};

// Blocks until all ranks are there. A peer without a proof of the secret is sent away. A rank with a proof that
// disagrees about the world ends the meeting on all ranks.
std::unique_ptr<Bootstrap> join(JoinArgs args);

}  // namespace weft::detail
