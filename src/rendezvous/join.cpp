#include "rendezvous/join.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <random>

#include "core/argument.hpp"
#include "core/channel.hpp"
#include "rendezvous/connection.hpp"
#include "rendezvous/star.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view joining = "join";
constexpr std::uint64_t stranger_limit = 4096;  // bytes that somebody without a valid hello may make us store
constexpr std::size_t most_strangers = 64;      // connections that have not said hello

struct Hello {
  std::uint64_t nonce = 0;
  std::int32_t rank = 0;
  std::int32_t world_size = 0;
};

[[noreturn]] void throw_rendezvous(const std::string& message) {
  throw Error(Errc::rendezvous, message);
}

// Rank 0's side: lets ranks in until all are there.
class Door {
 public:
  Door(const JoinArgs& args, const Deadline& deadline)
      : args_(args), deadline_(deadline), ranks_(static_cast<std::size_t>(args.world_size)) {}

  std::vector<Connection> admit_all() {
    while (!missing().empty()) {
      if (deadline_.passed()) fail(too_late(joining, list_ranks(missing()), deadline_) + turned_away_);
      std::vector<Connection*> connections;
      for (Connection& peer : ranks_) connections.push_back(&peer);
      for (Connection& stranger : strangers_) connections.push_back(&stranger);
      move_some(connections, deadline_, args_.listener.get());
      for (std::size_t r = 1; r < ranks_.size(); ++r) check_still_there(static_cast<int>(r));
      for (std::size_t i = strangers_.size(); i-- > 0;) {
        if (hear(strangers_[i])) strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(i));
      }
      accept_some();
    }
    return std::move(ranks_);
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> list;
    for (std::size_t r = 1; r < ranks_.size(); ++r) {
      if (ranks_[r].fd() < 0) list.push_back(static_cast<int>(r));
    }
    return list;
  }

  void check_still_there(int rank) {
    Connection& peer = ranks_[static_cast<std::size_t>(rank)];
    if (!peer.is_closed()) return;
    while (const std::optional<Frame> frame = peer.next_frame()) {
      if (frame->kind == FrameKind::failure) fail(frame->text);  // it gave up, and says why
    }
    fail(fmt::format("rendezvous '{}': rank {} disconnected", joining, rank));
  }

  void accept_some() {
    while (UniqueFd socket = accept_connection(args_.listener.get())) {
      if (strangers_.size() == most_strangers) strangers_.erase(strangers_.begin());
      strangers_.emplace_back(std::move(socket)).set_frame_limit(stranger_limit);
    }
  }

  // True when there is nothing more to hear.
  bool hear(Connection& stranger) {
    const std::optional<Frame> frame = stranger.next_frame();
    if (!frame) return stranger.is_closed();
    if (frame->kind != FrameKind::hello || frame->body.size() != sizeof(Hello)) return true;
    Hello hello;
    std::memcpy(&hello, frame->body.data(), sizeof hello);
    if (hello.nonce != args_.nonce) {
      // Left over from another job or on its way to one: not our trouble, as long as our own ranks come.
      turned_away_ = fmt::format("; a rank {} of another job (other id) was turned away", hello.rank);
      stranger.queue(FrameKind::failure, "rank 0 at this port belongs to another job (its id differs)");
      stranger.send_some();
      return true;
    }
    if (hello.world_size != args_.world_size) {
      fail(fmt::format("ranks disagree about the world size: rank 0 says {}, rank {} says {}", args_.world_size,
                       hello.rank, hello.world_size));
    }
    if (hello.rank < 1 || hello.rank >= args_.world_size) {
      fail(fmt::format("a second process says it is rank {}; others than rank 0 are 1 … {}", hello.rank,
                       args_.world_size - 1));
    }
    Connection& place = ranks_[static_cast<std::size_t>(hello.rank)];
    if (place.fd() >= 0) fail(fmt::format("two processes say they are rank {}", hello.rank));
    place = std::move(stranger);
    place.set_frame_limit(Connection::default_frame_limit);
    for (Connection& peer : ranks_) peer.queue(FrameKind::waiting, list_ranks(missing()));
    for (Connection& peer : ranks_) peer.send_some();
    return true;
  }

  // Tells everybody, also who is not in yet.
  [[noreturn]] void fail(const std::string& message) {
    for (std::vector<Connection>* connections : {&ranks_, &strangers_}) {
      for (Connection& connection : *connections) {
        connection.queue(FrameKind::failure, message);
        connection.send_some();
      }
    }
    throw_rendezvous(message);
  }

  const JoinArgs& args_;
  const Deadline& deadline_;
  std::vector<Connection> ranks_;  // [0] stays empty
  std::vector<Connection> strangers_;
  std::string turned_away_;
};

struct Admission {
  Connection root;
  std::string missing;  // whom rank 0 still waits for
};

// Asks for admission over a fresh connection. Empty when the other side hung up without a word, as a listener does that
// just closed after an earlier meeting.
std::optional<Admission> ask(UniqueFd socket, const JoinArgs& args, const Deadline& deadline) {
  Connection root(std::move(socket));
  Connection* const connections[] = {&root};
  const Hello hello{.nonce = args.nonce, .rank = args.rank, .world_size = args.world_size};
  root.queue(FrameKind::hello, joining, std::as_bytes(std::span(&hello, 1)));
  root.send_some();
  for (;;) {
    if (const std::optional<Frame> frame = root.next_frame()) {
      if (frame->kind == FrameKind::failure) throw_rendezvous(frame->text);
      return Admission{.root = std::move(root), .missing = frame->text};
    }
    if (root.is_garbled()) throw_rendezvous(fmt::format("what answers at {} is another program", args.place));
    if (root.is_closed()) return std::nullopt;
    if (deadline.passed()) {
      throw_rendezvous(too_late(joining, "rank 0", deadline) +
                       fmt::format(" (something at {} accepts connections and does not answer)", args.place));
    }
    move_some(connections, deadline);
  }
}

Admission find_rank_0(const JoinArgs& args, const Deadline& deadline) {
  std::string why;
  milliseconds pause(1);
  for (;;) {
    for (const SocketAddress& address : args.addresses(why)) {
      if (deadline.passed()) break;
      UniqueFd socket = try_connect(address, deadline, why);
      if (!socket) continue;
      if (std::optional<Admission> admission = ask(std::move(socket), args, deadline)) return std::move(*admission);
      why = "the connection was closed";
    }
    if (deadline.passed()) {
      throw_rendezvous(too_late(joining, "rank 0", deadline) + fmt::format(" ({}: {})", args.place, why));
    }
    ::poll(nullptr, 0, deadline.poll_timeout(pause));
    pause = std::min(2 * pause, milliseconds(100));
  }
}

// A loopback address says nothing to other hosts, so rank 0 prefers the address under which a remote rank found it.
std::string address_of(const std::vector<Connection>& peers) {
  std::string address;
  for (const Connection& peer : peers) {
    if (peer.fd() < 0) continue;
    const SocketAddress local = local_address(peer.fd());
    if (address.empty() || !local.is_loopback()) address = local.host();
  }
  return address;
}

}  // namespace

void check_meeting(int rank, int world_size, std::chrono::nanoseconds deadline) {
  check_argument(world_size >= 1 && world_size <= static_cast<int>(kMaxRanks), "world_size", world_size,
                 fmt::format("between 1 and {}", kMaxRanks));
  check_argument(rank >= 0 && rank < world_size, "rank", rank, fmt::format("between 0 and {}", world_size - 1));
  check_argument(deadline.count() >= 0, "Config::rendezvous_deadline", deadline.count(), "0 or more nanoseconds");
}

std::unique_ptr<Bootstrap> join(JoinArgs args) {
  const Deadline deadline(args.deadline);
  std::vector<Connection> peers;
  std::string missing;
  if (args.rank == 0) {
    peers = Door(args, deadline).admit_all();
    args.listener.reset();  // before anybody can come back for a next meeting at this port
  } else {
    Admission admission = find_rank_0(args, deadline);
    peers.push_back(std::move(admission.root));
    missing = std::move(admission.missing);
  }
  std::string address = address_of(peers);
  auto bootstrap = std::make_unique<StarBootstrap>(StarBootstrap::Args{.rank = args.rank,
                                                                       .size = args.world_size,
                                                                       .deadline = args.deadline,
                                                                       .address = std::move(address),
                                                                       .peers = std::move(peers)});
  bootstrap->finish_joining(joining, deadline, std::move(missing));
  return bootstrap;
}

std::uint64_t random_nonce() {
  std::random_device source;
  return (std::uint64_t{source()} << 32) | source();
}

std::unique_ptr<Bootstrap> make_tcp_bootstrap(TcpArgs args) {
  check_meeting(args.rank, args.world_size, args.deadline);
  JoinArgs join_args{.nonce = args.nonce,
                     .rank = args.rank,
                     .world_size = args.world_size,
                     .deadline = args.deadline,
                     .place = fmt::format("{} port {}", args.host, args.port)};
  if (args.rank != 0) {
    join_args.addresses = [host = args.host, port = args.port](std::string& why) { return resolve(host, port, why); };
  } else if (args.listener) {
    join_args.listener = std::move(args.listener);
  } else if (args.world_size > 1) {
    join_args.listener = listen_tcp(args.host, args.port);
  }
  return join(std::move(join_args));
}

std::vector<std::unique_ptr<Bootstrap>> make_thread_bootstraps(int world_size, std::chrono::nanoseconds deadline) {
  check_meeting(0, world_size, deadline);
  std::vector<std::vector<Connection>> peers(static_cast<std::size_t>(world_size));
  peers[0].resize(peers.size());
  for (std::size_t r = 1; r < peers.size(); ++r) {
    auto [root, leaf] = socket_pair();
    peers[0][r] = Connection(std::move(root));
    peers[r].emplace_back(std::move(leaf));
  }
  std::vector<std::unique_ptr<Bootstrap>> bootstraps;
  for (std::size_t r = 0; r < peers.size(); ++r) {
    bootstraps.push_back(std::make_unique<StarBootstrap>(StarBootstrap::Args{.rank = static_cast<int>(r),
                                                                             .size = world_size,
                                                                             .deadline = deadline,
                                                                             .address = {},
                                                                             .peers = std::move(peers[r])}));
  }
  return bootstraps;
}

}  // namespace weft::detail
