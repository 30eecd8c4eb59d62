#include "rendezvous/socket.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>

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

// On loopback a retried connect to a free port of the ephemeral range can meet itself; it would also keep the port
// from rank 0.
bool connected_to_itself(int socket) {
  SocketAddress peer;
  if (::getpeername(socket, peer.get(), &peer.length) != 0) return false;
  const SocketAddress own = local_address(socket);
  return own.port() != 0 && own.port() == peer.port() && own.host() == peer.host();
}

SocketAddress any_address(int family, std::uint16_t port) {
  SocketAddress any;
  if (family == AF_INET6) {
    const sockaddr_in6 in6{.sin6_family = AF_INET6,
                           .sin6_port = htons(port),
                           .sin6_flowinfo = 0,
                           .sin6_addr = IN6ADDR_ANY_INIT,
                           .sin6_scope_id = 0};
    std::memcpy(&any.storage, &in6, any.length = sizeof in6);
  } else {
    const sockaddr_in in{
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_ANY)}, .sin_zero = {}};
    std::memcpy(&any.storage, &in, any.length = sizeof in);
  }
  return any;
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

UniqueFd listen_at(const SocketAddress& address) {
  UniqueFd socket(::socket(address.storage.ss_family, SOCK_STREAM | socket_flags, 0));
  if (!socket) throw_errno("socket");
  if (address.storage.ss_family == AF_INET6) set_option(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
  set_option(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(socket.get(), address.get(), address.length) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    throw_errno(fmt::format("cannot listen at {} port {}", address.host(), address.port()));
  }
  return socket;
}

UniqueFd listen_tcp(const std::string& host, std::uint16_t port) {
  std::string why;
  const std::vector<SocketAddress> addresses = resolve(host, port, why);
  if (addresses.empty()) throw Error(Errc::system, why);
  // A host's own name often resolves to a loopback address on that host alone (Debian's 127.0.1.1), so only a name
  // that means loopback everywhere narrows the listener; for others it takes every interface.
  if (host == "localhost" || host == addresses.front().host()) {
    if (addresses.front().is_loopback()) return listen_at(addresses.front());
  }
  try {
    return listen_at(any_address(AF_INET6, port));  // serves IPv4 as well
  } catch (const Error&) {
    return listen_at(any_address(AF_INET, port));  // a machine without IPv6
  }
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
    // A host that drops packets must not take the whole time: another address may answer, or it may come up later.
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

UniqueFd accept_connection(int listener) {
  for (;;) {
    UniqueFd socket(::accept4(listener, nullptr, nullptr, socket_flags));
    const int no_delay = 1;
    if (socket) {
      // Fails on Unix sockets, which have no delay.
      ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &no_delay, sizeof no_delay);
      return socket;
    }
    if (errno == EAGAIN) return {};
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
