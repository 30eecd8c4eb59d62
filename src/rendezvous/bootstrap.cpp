#include "rendezvous/bootstrap.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include "base/foreign.hpp"
#include "rendezvous/descriptor_passing.hpp"
#include "rendezvous/process_identity.hpp"
#include "rendezvous/socket.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "an exception of unknown type";
  }
}

}  // namespace

void Bootstrap::throw_wrong_length(std::string_view what, int rank, std::size_t got, std::size_t wanted) {
  throw Error(Errc::rendezvous, fmt::format("rendezvous '{}': rank {} sent {} bytes instead of {} (another version?)",
                                            what, rank, got, wanted));
}

Bytes Bootstrap::broadcast(std::string_view what, int root, std::span<const std::byte> mine) {
  std::vector<Bytes> parts = all_gather(what, rank() == root ? mine : std::span<const std::byte>{});
  return std::move(parts.at(static_cast<std::size_t>(root)));
}

void Bootstrap::agree(std::string_view what, const std::exception_ptr& mine) {
  // The leading byte tells failure from success, as a message may be empty.
  const std::string vote = mine ? "!" + message_of(mine) : "";
  const std::vector<Bytes> votes = all_gather(what, std::as_bytes(std::span(vote)));
  if (mine) rethrow_as_error(mine);
  for (std::size_t r = 0; r < votes.size(); ++r) {
    if (votes[r].empty()) continue;
    const std::string_view text(reinterpret_cast<const char*>(votes[r].data()) + 1, votes[r].size() - 1);
    throw Error(Errc::rendezvous, fmt::format("{}: failed on rank {}: {}", what, r, text));
  }
}

UniqueFd Bootstrap::share_fd(std::string_view what, int root, int fd) {
  struct Offer {
    ProcessIdentity process;
    SocketAddress mailbox;
    int fd;
  };
  UniqueFd mailbox;
  std::exception_ptr trouble;
  Offer offer{.process = ProcessIdentity::current(), .mailbox = {}, .fd = fd};
  try {
    mailbox = bind_unix(SOCK_DGRAM);
    offer.mailbox = local_address(mailbox.get());
  } catch (...) {
    trouble = std::current_exception();  // kept until all ranks can hear of it
  }
  const std::vector<Offer> offers = all_gather_value(what, offer);
  const Offer& from = offers.at(static_cast<std::size_t>(root));
  // Every rank sees the same offers and comes to the same verdict.
  for (std::size_t r = 0; r < offers.size(); ++r) {
    if (!offers[r].process.same_network(from.process)) {
      throw Error(Errc::unsupported,
                  fmt::format("{}: ranks {} and {} share no {}, so memory cannot be handed over", what, root, r,
                              offers[r].process.same_host(from.process) ? "network namespace" : "host"));
    }
  }

  agree_on(what, [&] {
    if (trouble) std::rethrow_exception(trouble);
    for (const Offer& to : offers) {
      if (rank() == root && !to.process.same_process(from.process)) send_descriptor(mailbox.get(), to.mailbox, fd);
    }
  });
  UniqueFd mine;
  agree_on(what, [&] {
    if (offers[static_cast<std::size_t>(rank())].process.same_process(from.process)) {
      mine = UniqueFd(::fcntl(from.fd, F_DUPFD_CLOEXEC, 0));
      if (!mine) throw_errno(fmt::format("{}: dup of descriptor {}", what, from.fd));
    } else {
      mine = receive_descriptor(mailbox.get(), from.process);
    }
  });
  return mine;
}

}  // namespace weft::detail
