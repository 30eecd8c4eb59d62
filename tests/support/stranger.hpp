// A stranger that exchanges the rendezvous' frames with a rank.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "rendezvous/connection.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/socket.hpp"
#include "support/ranks.hpp"

namespace weft::test {

class Stranger {
 public:
  explicit Stranger(detail::UniqueFd socket) : connection_(std::move(socket)) {}
  // Connects to a port of the loopback address at which a listener waits.
  explicit Stranger(std::uint16_t port) : Stranger(connect(port)) {}

  void say(detail::FrameKind kind, std::span<const std::byte> body, std::string_view text = "join") {
    connection_.queue(kind, text, body);
    connection_.send_some();
  }
  // The next frame; empty if the other side has hung up.
  std::optional<detail::Frame> hear() {
    detail::Connection* const connections[] = {&connection_};
    const detail::Deadline deadline(long_deadline);
    for (;;) {
      if (auto frame = connection_.next_frame()) return frame;
      ensure(!deadline.passed(), "nothing came");
      if (connection_.is_closed()) return std::nullopt;
      detail::move_some(connections, deadline);
    }
  }

 private:
  static detail::UniqueFd connect(std::uint16_t port) {
    std::string why;
    const auto address = detail::resolve("127.0.0.1", port, why).at(0);
    detail::UniqueFd socket = detail::try_connect(address, detail::Deadline(long_deadline), why);
    ensure(static_cast<bool>(socket), why);
    return socket;
  }

  detail::Connection connection_;
};

}  // namespace weft::test
