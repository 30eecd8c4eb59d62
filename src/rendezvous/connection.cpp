#include "rendezvous/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rendezvous/socket.hpp"

namespace weft::detail {
namespace {

// Changes with every change of the frames.
constexpr std::uint32_t frame_magic = 0x57'45'46'01;

struct FrameHeader {
  std::uint32_t magic = frame_magic;
  FrameKind kind{};
  std::uint64_t text_bytes = 0;
  std::uint64_t body_bytes = 0;
};

}  // namespace

void Connection::queue(FrameKind kind, std::string_view text, std::span<const std::byte> body) {
  if (!socket_) return;
  const FrameHeader header{.kind = kind, .text_bytes = text.size(), .body_bytes = body.size()};
  const auto append = [&](std::span<const std::byte> bytes) {
    output_.insert(output_.end(), bytes.begin(), bytes.end());
  };
  append(std::as_bytes(std::span(&header, 1)));
  append(std::as_bytes(std::span(text)));
  append(body);
}

void Connection::send_some() {
  std::size_t sent = 0;
  while (socket_ && writable_ && sent < output_.size()) {
    const ssize_t n = ::send(fd(), output_.data() + sent, output_.size() - sent, MSG_NOSIGNAL);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno != EINTR) {
      writable_ = errno == EAGAIN;
      break;
    }
  }
  output_.erase(output_.begin(), output_.begin() + static_cast<std::ptrdiff_t>(sent));
}

void Connection::receive_some() {
  std::array<std::byte, 16384> chunk;
  while (socket_ && readable_ && input_.size() <= sizeof(FrameHeader) + frame_limit_) {
    const ssize_t n = ::recv(fd(), chunk.data(), chunk.size(), 0);
    if (n > 0) {
      input_.insert(input_.end(), chunk.begin(), chunk.begin() + n);
    } else if (n == 0 || (errno != EINTR && errno != EAGAIN)) {
      readable_ = false;
    } else if (errno == EAGAIN) {
      break;
    }
  }
}

std::optional<Frame> Connection::next_frame() {
  if (input_.empty()) return std::nullopt;
  FrameHeader header;
  std::memcpy(&header, input_.data(), std::min(sizeof header, input_.size()));
  // A foreign program may say less than a header and then wait.
  if (input_.size() >= sizeof header.magic && header.magic != frame_magic) garbled_ = true;
  if (header.text_bytes > frame_limit_ || header.body_bytes > frame_limit_ - header.text_bytes) garbled_ = true;
  if (garbled_) readable_ = false;
  const std::size_t bytes = sizeof header + header.text_bytes + header.body_bytes;
  if (garbled_ || input_.size() < bytes) return std::nullopt;

  const std::byte* text = input_.data() + sizeof header;
  const std::byte* body = text + header.text_bytes;
  Frame frame{.kind = header.kind, .text = {}, .body = Bytes(body, body + header.body_bytes)};
  frame.text.assign(reinterpret_cast<const char*>(text), header.text_bytes);
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return frame;
}

void move_some(std::span<Connection* const> connections, const Deadline& deadline, int listener,
               std::chrono::milliseconds most) {
  std::vector<pollfd> entries{{.fd = listener, .events = POLLIN, .revents = 0}};
  for (const Connection* connection : connections) {
    const short events = connection->all_sent() ? POLLIN : POLLIN | POLLOUT;
    // Who hung up would make every poll return at once.
    entries.push_back({.fd = connection->is_closed() ? -1 : connection->fd(), .events = events, .revents = 0});
  }
  if (::poll(entries.data(), entries.size(), deadline.poll_timeout(most)) < 0 && errno != EINTR) throw_errno("poll");
  for (Connection* connection : connections) {
    connection->send_some();
    connection->receive_some();
  }
}

}  // namespace weft::detail
