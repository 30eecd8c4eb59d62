#include "rendezvous/descriptor_passing.hpp"

#include <fmt/format.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "weft/error.hpp"

namespace weft::detail {
namespace {

// Room for one descriptor and the sender's credentials.
struct ControlMessage {
  alignas(cmsghdr) char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))] = {};
};

struct Delivery {
  UniqueFd fd;
  ucred sender{};
};

// Empty while there is no message.
std::optional<Delivery> receive_one(int socket) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  ControlMessage control;
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  if (::recvmsg(socket, &message, MSG_CMSG_CLOEXEC) < 0) {
    if (errno == EAGAIN) return std::nullopt;
    throw_errno("recvmsg");
  }
  Delivery delivery;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET) continue;
    if (part->cmsg_type == SCM_CREDENTIALS) std::memcpy(&delivery.sender, CMSG_DATA(part), sizeof(ucred));
    if (part->cmsg_type != SCM_RIGHTS) continue;
    // The kernel may have put more than one into the padding; all but the last close here.
    for (std::size_t at = 0; CMSG_LEN(at + sizeof(int)) <= part->cmsg_len; at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + at, sizeof fd);
      delivery.fd = UniqueFd(fd);
    }
  }
  return delivery;
}

}  // namespace

void send_descriptor(int socket, const SocketAddress& to, int fd) {
  char byte = 0;
  iovec data{.iov_base = &byte, .iov_len = 1};
  ControlMessage control;
  msghdr message{};
  message.msg_name = const_cast<sockaddr*>(to.get());
  message.msg_namelen = to.length;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = CMSG_SPACE(sizeof fd);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  if (::sendmsg(socket, &message, MSG_NOSIGNAL) < 0) throw_errno("sendmsg of a descriptor");
}

UniqueFd receive_descriptor(int socket, const ProcessIdentity& sender) {
  const bool comparable_pids = sender.same_pids(ProcessIdentity::current());
  while (std::optional<Delivery> delivery = receive_one(socket)) {
    if (delivery->fd && delivery->sender.uid == ::geteuid() &&
        (!comparable_pids || delivery->sender.pid == sender.pid)) {
      return std::move(delivery->fd);
    }
  }
  throw Error(Errc::system, fmt::format("no descriptor came from process {}", sender.pid));
}

}  // namespace weft::detail
