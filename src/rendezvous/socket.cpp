#include "rendezvous/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

constexpr int socket_flags = SOCK_NONBLOCK | SOCK_CLOEXEC;

std::string errno_text(int error) {
  return std::generic_category().message(error);
}

void set_option(int socket, int level, int option, int value) {
  if (::setsockopt(socket, level, option, &value, sizeof value) != 0) throw_errno("setsockopt");
}

// On loopback a retried connect to a free port of the ephemeral range can meet itself. It would also keep the port from
// rank 0.
bool connected_to_itself(int socket) {
  SocketAddress peer;
  if (::getpeername(socket, peer.get(), &peer.length) != 0) return false;
  const SocketAddress own = local_address(socket);
  return own.port() != 0 && own.port() == peer.port() && own.host() == peer.host();
}

// Used if rank 0's host has no address that others are known to reach.
SocketAddress only_interface(const ListenArgs& args) {
  const std::vector<SocketAddress> addresses = interface_addresses(args.port);
  if (addresses.size() == 1) return addresses.front();
  std::vector<std::string> hosts;
  for (const SocketAddress& address : addresses) hosts.push_back(address.host());
  throw Error(
      Errc::rendezvous,
      fmt::format("'{}' is a loopback address on its own host, where other hosts reach nobody, and its interfaces "
                  "have {}: give rank 0's address by WEFT_RENDEZVOUS=address:port or MASTER_ADDR",
                  args.host, hosts.empty() ? "no address" : fmt::format("{}", fmt::join(hosts, ", "))));
}

// The descriptor, or errno's negative.
int try_listen(const SocketAddress& address) {
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | socket_flags, 0));
  if (!socket) return -errno;
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), address.get(), address.length) != 0) return -errno;
  if (::listen(socket.get(), SOMAXCONN) != 0) return -errno;
  return socket.release();
}

[[noreturn]] void throw_cannot_listen(const SocketAddress& address, const std::string& origin, int error) {
  const std::string from = origin.empty() ? "" : fmt::format(" ({})", origin);
  const std::string hint = error != EADDRINUSE ? ""
                                               : "; another process is rank 0 of this job already (two were given rank "
                                                 "0?), or another job or program has this port";
  throw Error(Errc::system, fmt::format("cannot listen at {} port {}{}: {}{}", address.host(), address.port(), from,
                                        errno_text(error), hint));
}

}  // namespace

void throw_errno(const std::string& tried) {
  throw Error(Errc::system, fmt::format("{}: {}", tried, errno_text(errno)));
}

std::string SocketAddress::host() const {
  char text[NI_MAXHOST] = "";
  const int family = storage.ss_family;
  if (family != AF_INET && family != AF_INET6) return {};
  if (::getnameinfo(get(), length, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return {};
  const std::string_view mapped = "::ffff:";  // an IPv4 peer of a listener that serves both
  return std::string_view(text).starts_with(mapped) ? text + mapped.size() : text;
}

std::uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  if (storage.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  return 0;
}

bool SocketAddress::is_loopback() const {
  const std::string text = host();
  return text.starts_with("127.") || text == "::1";
}

SocketAddress local_address(int socket) {
  SocketAddress address;
  if (::getsockname(socket, address.get(), &address.length) != 0) throw_errno("getsockname");
  return address;
}

std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, std::string& why) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); code != 0) {
    why = fmt::format("no address for '{}': {}", host, code == EAI_SYSTEM ? errno_text(errno) : gai_strerror(code));
    return {};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, &::freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::memcpy(&address.storage, entry->ai_addr, entry->ai_addrlen);
    address.length = entry->ai_addrlen;
  }
  return addresses;
}

std::vector<SocketAddress> interface_addresses(std::uint16_t port) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) throw_errno("getifaddrs");
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  std::vector<SocketAddress> addresses;
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET || (entry->ifa_flags & IFF_UP) == 0)
      continue;
    sockaddr_in in;
    std::memcpy(&in, entry->ifa_addr, sizeof in);
    in.sin_port = htons(port);
    SocketAddress address;
    std::memcpy(&address.storage, &in, address.length = sizeof in);
    if (!address.is_loopback()) addresses.push_back(address);
  }
  return addresses;
}

bool means_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

bool is_loopback(const std::string& host) {
  if (means_loopback(host)) return true;
  std::string why;
  const std::vector<SocketAddress> addresses = resolve(host, 0, why);
  return !addresses.empty() && std::ranges::all_of(addresses, &SocketAddress::is_loopback);
}

UniqueFd listen_at(const SocketAddress& address) {
  const int socket = try_listen(address);
  if (socket < 0) throw_cannot_listen(address, "", -socket);
  return UniqueFd(socket);
}

UniqueFd listen_tcp(const ListenArgs& args) {
  std::string why;
  std::vector<SocketAddress> addresses = resolve(args.host, args.port, why);
  if (addresses.empty()) throw Error(Errc::system, why);
  if (args.other_hosts && std::ranges::all_of(addresses, &SocketAddress::is_loopback))
    addresses = {only_interface(args)};
  // Ranks also go through the addresses in this order: so a port that is taken at one address counts as taken at all.
  std::stable_partition(addresses.begin(), addresses.end(),
                        [](const SocketAddress& address) { return !address.is_loopback(); });
  for (const SocketAddress& address : addresses) {
    const int socket = try_listen(address);
    if (socket >= 0) return UniqueFd(socket);
    const bool try_next = socket == -EADDRNOTAVAIL || socket == -EAFNOSUPPORT;
    if (!try_next || &address == &addresses.back()) throw_cannot_listen(address, args.port_origin, -socket);
  }
  return {};
}

UniqueFd bind_unix(int type) {
  UniqueFd socket(::socket(AF_UNIX, type | socket_flags, 0));
  if (!socket) throw_errno("socket");
  if (type == SOCK_DGRAM) set_option(socket.get(), SOL_SOCKET, SO_PASSCRED, 1);
  const sockaddr_un unnamed{.sun_family = AF_UNIX, .sun_path = {}};
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&unnamed), sizeof(sa_family_t)) != 0) throw_errno("bind");
  if (type == SOCK_STREAM && ::listen(socket.get(), SOMAXCONN) != 0) throw_errno("listen");
  return socket;
}

UniqueFd try_connect(const SocketAddress& address, const Deadline& deadline, std::string& why) {
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | socket_flags, 0));
  if (!socket) throw_errno("socket");
  if (address.storage.ss_family != AF_UNIX) set_option(socket.get(), IPPROTO_TCP, TCP_NODELAY, 1);
  int error = ::connect(socket.get(), address.get(), address.length) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd entry{.fd = socket.get(), .events = POLLOUT, .revents = 0};
    // A host that drops packets must not use up the whole time: another address may answer, or the host may come up
    // later.
    while (::poll(&entry, 1, deadline.poll_timeout(std::chrono::seconds(5))) < 0 && errno == EINTR) {
    }
    socklen_t length = sizeof error;
    if (entry.revents == 0) {
      error = ETIMEDOUT;
    } else if (::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
      throw_errno("getsockopt");
    }
  }
  if (error == 0 && connected_to_itself(socket.get())) error = ECONNREFUSED;
  if (error == 0) return socket;
  why = errno_text(error);
  return {};
}

UniqueFd accept_connection(int listener, bool* full) {
  for (;;) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, socket_flags));
    const int no_delay = 1;
    if (socket) {
      // Fails on Unix sockets, which have no delay.
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
      return socket;
    }
    if (errno == EAGAIN) return {};
    if (full != nullptr && (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
      *full = true;
      return {};
    }
    const bool try_next = errno == EINTR || errno == ECONNABORTED || errno == EPROTO;
    if (!try_next) throw_errno("accept");
  }
}

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | socket_flags, 0, ends) != 0) throw_errno("socketpair");
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace weft::detail
