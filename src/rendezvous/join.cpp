#include "rendezvous/join.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/argument.hpp"
#include "base/limits.hpp"
#include "rendezvous/connection.hpp"
#include "rendezvous/door.hpp"
#include "rendezvous/star.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using std::chrono::milliseconds;

[[noreturn]] void throw_rendezvous(const std::string& message) {
  throw Error(Errc::rendezvous, message);
}

struct Admission {
  Connection root;
  std::string missing;  // ranks that rank 0 still waits for
};

// One attempt at rank 0's door, over a fresh connection.
class Knock {
 public:
  Knock(UniqueFd socket, const JoinArgs& args, const Deadline& deadline)
      : args_(args),
        deadline_(deadline),
        root_(std::move(socket)),
        said_(to_bytes(Hello{.job = args.job,
                             .rank = args.rank,
                             .world_size = args.world_size,
                             .nonce = random_nonce(),
                             .name = args.name,
                             .build = args.build})) {}

  // Empty if the rank has to come again; `why` has the reason. Rank 0 is not ready, or it hung up without a word, like
  // a listener that just closed after an earlier meeting. `told`: what rank 0 has said last when it was not ready. A
  // later attempt that finds nobody does not take its place.
  std::optional<Admission> ask(std::string& why, std::string& told) {
    Connection* const connections[] = {&root_};
    root_.set_frame_limit(stranger_limit);
    root_.queue(FrameKind::hello, joining, said_);
    root_.send_some();
    for (;;) {
      while (const std::optional<Frame> frame = root_.next_frame()) {
        if (frame->kind == FrameKind::again) {
          why = told = printable(frame->text);
          return std::nullopt;
        }
        if (hear(*frame)) return Admission{.root = std::move(root_), .missing = printable(frame->text)};
      }
      if (root_.is_garbled())
        throw_rendezvous(fmt::format("the listener at {} sends {}", args_.place, root_.garbage()));
      if (root_.is_closed()) {
        why = "the connection was closed";
        return std::nullopt;
      }
      if (deadline_.passed()) {
        const std::string silent = fmt::format("something at {} accepts connections and does not answer", args_.place);
        throw_rendezvous(too_late(joining, "rank 0", deadline_) +
                         fmt::format(" ({})", told.empty() ? silent : args_.place + ": " + told));
      }
      move_some(connections, deadline_);
    }
  }

 private:
  // True when this rank is in.
  bool hear(const Frame& frame) {
    if (frame.kind == FrameKind::failure) {
      const bool proved = nonce_.has_value();
      throw_rendezvous(printable(frame.text) + (proved ? secret_of_this_rank() : ""));
    }
    Nonce nonce;
    if (frame.kind == FrameKind::challenge && !nonce_ && frame.body.size() == nonce.size()) {
      std::memcpy(nonce.data(), frame.body.data(), nonce.size());
      nonce_ = nonce;
      root_.queue(FrameKind::proof, joining, proof_of(args_.key, Role::rank, said_, nonce));
      root_.send_some();
      return false;
    }
    if (frame.kind != FrameKind::welcome || !nonce_) {
      throw_rendezvous(fmt::format("the listener at {} is another program", args_.place));
    }
    if (!proves(frame.body, proof_of(args_.key, Role::rank_0, said_, *nonce_))) {
      throw_rendezvous(fmt::format("the listener at {} does not prove that it knows the secret", args_.place) +
                       secret_of_this_rank());
    }
    root_.set_frame_limit(Connection::default_frame_limit);
    return true;
  }

  std::string secret_of_this_rank() const {
    return args_.key_source.empty() ? "" : fmt::format("; rank {} has its own from {}", args_.rank, args_.key_source);
  }

  const JoinArgs& args_;
  const Deadline& deadline_;
  Connection root_;
  Bytes said_;
  std::optional<Nonce> nonce_;  // rank 0's
};

Admission find_rank_0(const JoinArgs& args, const Deadline& deadline) {
  std::string why, told;
  milliseconds pause(1);
  for (;;) {
    for (const SocketAddress& address : args.addresses(why)) {
      if (deadline.passed()) break;
      UniqueFd socket = try_connect(address, deadline, why);
      if (!socket) continue;
      if (std::optional<Admission> in = Knock(std::move(socket), args, deadline).ask(why, told)) return std::move(*in);
    }
    if (deadline.passed()) {
      // Rank 0 may have ended by a deadline of its own just before. The cause is in its last words, and not in the
      // refusal.
      const std::string cause = told.empty() || told == why ? why : told + "; at last: " + why;
      throw_rendezvous(too_late(joining, "rank 0", deadline) + fmt::format(" ({}: {})", args.place, cause));
    }
    ::poll(nullptr, 0, deadline.poll_timeout(pause));
    pause = std::min(2 * pause, milliseconds(100));
  }
}

// A loopback address means nothing to other hosts. So rank 0 prefers the address under which a remote rank found it.
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
  if (is_none(args.key)) throw_rendezvous("ranks cannot meet without a secret");
  const Deadline deadline(args.deadline);
  std::vector<Connection> peers(1);
  std::string missing;
  if (args.rank == 0 && args.world_size > 1) {
    peers = admit_all(args, deadline);  // closes its listener before a rank can come back for a next meeting there
  } else if (args.rank != 0) {
    Admission admission = find_rank_0(args, deadline);
    peers[0] = std::move(admission.root);
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
