// Ranks that meet at a TCP port, at which rank 0 listens.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/key.hpp"
#include "rendezvous/unique_fd.hpp"

namespace weft::detail {

struct TcpArgs {
  std::string host;
  std::uint16_t port = 0;
  std::string port_origin = {};  // for people: "MASTER_PORT + 1000"
  bool other_hosts = false;      // some ranks are known to be on other hosts than rank 0
  std::uint64_t job = 0;         // the same on all ranks of a job and different between jobs; public
  Key key{};                     // the same on all ranks, and secret
  std::string key_source = {};   // for people: "WEFT_SECRET"
  std::string name = {};         // Config::name: it tells meetings of one process at one port apart
  int rank = 0;
  int world_size = 1;
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  UniqueFd listener = {};  // rank 0: a socket that already listens there, for this meeting alone
};
std::unique_ptr<Bootstrap> make_tcp_bootstrap(TcpArgs args);

}  // namespace weft::detail
