// Descriptors that travel between processes of one host.
#pragma once

#include "rendezvous/process_identity.hpp"
#include "rendezvous/socket.hpp"

namespace weft::detail {

void send_descriptor(int socket, const SocketAddress& to, int fd);

// Takes the descriptor that `sender` has sent. Abstract sockets are open to every process of the network namespace, so
// descriptors of other processes are closed and ignored. Throws Errc::system when nothing is there.
UniqueFd receive_descriptor(int socket, const ProcessIdentity& sender);

}  // namespace weft::detail
