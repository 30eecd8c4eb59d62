// The first byte chooses the receiver of the other bytes, and their form.
#include <sys/socket.h>

#include <memory>

#include "comm/agreed_tuning.hpp"
#include "fuzz/targets.hpp"
#include "rendezvous/hello.hpp"
#include "rendezvous/parts.hpp"
#include "rendezvous/socket.hpp"
#include "rendezvous/star.hpp"
#include "weft/error.hpp"

namespace weft::fuzz {
namespace {

using namespace weft::detail;

template <class Body>
void errors_allowed(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    require(error.code() != Errc::ok && *error.what() != 0, "an error says something");
  }
}

// A meeting of two whose other end sends `data` and hangs up. The data are raw bytes, or frames whose kind, text and
// body are arbitrary.
void meet(int rank, bool raw, Bytes data) {
  auto [own, other] = socket_pair();
  std::vector<Connection> peers(rank == 0 ? 2 : 1);
  peers.back() = Connection(std::move(own));
  StarBootstrap bootstrap({.rank = rank, .size = 2, .deadline = {}, .address = {}, .peers = std::move(peers)});
  if (raw) {
    static_cast<void>(::send(other.get(), data.data(), data.size(), MSG_NOSIGNAL) >= 0);
  } else {
    Connection peer(std::move(other));
    while (data.size() >= 3) {
      const auto number = [&](std::size_t i) { return std::to_integer<std::uint32_t>(data[i]); };
      const std::size_t length = std::min<std::size_t>(number(2), data.size() - 3);
      peer.queue(static_cast<FrameKind>(number(0)), number(1) % 2 == 0 ? "numbers" : "letters",
                 data.subspan(3, length));
      data = data.subspan(3 + length);
    }
    peer.send_some();
  }
  other.reset();
  errors_allowed([&] { bootstrap.all_gather_value("numbers", 1); });
  errors_allowed([&] { bootstrap.barrier("letters"); });
}

// A stranger that has proved nothing yet.
void knock(Bytes data) {
  auto [own, other] = socket_pair();
  static_cast<void>(::send(other.get(), data.data(), data.size(), MSG_NOSIGNAL) >= 0);
  other.reset();
  Connection connection(std::move(own));
  connection.set_frame_limit(4096);
  connection.receive_some();
  while (const std::optional<Frame> frame = connection.next_frame()) {
    require(frame->body.size() + frame->text.size() <= 4096, "frames of strangers are small");
    printable(frame->text);
    read_hello(frame->body);
  }
}

void greet(Bytes data) {
  if (const std::optional<Hello> hello = read_hello(data)) {
    require(std::ranges::equal(to_bytes(*hello), data), "a hello is written as it was read");
    errors_allowed([&] { check_name(hello->name); });
  }
  require(!proves(data, proof_of(key_of("of nobody's"), Role::rank, data, Nonce{})), "nobody guesses a proof");
}

}  // namespace

void frames(Bytes data) {
  if (data.empty()) return;
  const auto choice = std::to_integer<unsigned>(data[0]) % 8;
  data = data.subspan(1, std::min<std::size_t>(data.size() - 1, 1 << 16));
  if (choice < 4) meet(static_cast<int>(choice / 2), choice % 2 == 0, data);
  if (choice == 4) knock(data);
  if (choice == 5) greet(data);
  if (choice == 6) errors_allowed([&] { require(unpack("numbers", data, 3).size() == 3, "a part of each rank"); });
  if (choice == 7) errors_allowed([&] { agreed_tuning(data); });
}

}  // namespace weft::fuzz
