#include "rendezvous/connection.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rendezvous/socket.hpp"

namespace weft::detail {
namespace {

// The last byte is the version. It changes with every change of the frames and of their contents.
constexpr std::uint32_t frame_magic = 0x57'45'46'02;
constexpr std::uint32_t version_bits = 0xff;

struct FrameHeader {
  std::uint32_t magic = frame_magic;
  FrameKind kind{};
  std::uint64_t text_bytes = 0;
  std::uint64_t body_bytes = 0;
};

// Cuts no character in two.
std::string_view beginning(std::string_view text) {
  if (text.size() <= Connection::most_text) return text;
  std::size_t end = Connection::most_text;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end);
}

// The reason why this is no beginning of a frame of at most `limit` bytes; empty while it may be one.
std::string look_at(std::span<const std::byte> input, const FrameHeader& header, std::uint64_t limit) {
  // A foreign program may say less than a header and then wait.
  if (input.size() < sizeof header.magic) return {};
  if (((header.magic ^ frame_magic) & ~version_bits) != 0) return "what is no frame of Weft's (another program?)";
  if (header.magic != frame_magic) {
    return fmt::format("frames of version {}, those of this build are of version {} (another version of Weft)",
                       header.magic & version_bits, frame_magic & version_bits);
  }
  // Bytes that have not come yet are 0 there.
  if (header.text_bytes > Connection::most_text) {
    return fmt::format("a text of {} bytes, allowed are {}", header.text_bytes, Connection::most_text);
  }
  if (header.text_bytes > limit || header.body_bytes > limit - header.text_bytes) {
    return fmt::format("a frame that claims {} bytes, allowed are {}", header.body_bytes, limit);
  }
  return {};
}

}  // namespace

void Connection::queue(FrameKind kind, std::string_view text, std::span<const std::byte> body) {
  if (!socket_) return;
  text = beginning(text);
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
  garbage_ = look_at(input_, header, frame_limit_);
  if (is_garbled()) readable_ = false;
  const std::size_t bytes = sizeof header + header.text_bytes + header.body_bytes;
  if (is_garbled() || input_.size() < bytes) return std::nullopt;

  const std::byte* text = input_.data() + sizeof header;
  const std::byte* body = text + header.text_bytes;
  Frame frame{.kind = header.kind, .text = {}, .body = Bytes(body, body + header.body_bytes)};
  frame.text.assign(reinterpret_cast<const char*>(text), header.text_bytes);
  input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(bytes));
  return frame;
}

void move_some(std::span<Connection* const> connections, const Deadline& deadline, std::initializer_list<int> others,
               std::chrono::milliseconds most) {
  std::vector<pollfd> entries;
  for (const int other : others) entries.push_back({.fd = other, .events = POLLIN, .revents = 0});
  for (const Connection* connection : connections) {
    const short events = connection->all_sent() ? POLLIN : POLLIN | POLLOUT;
    // A closed connection would make every poll return at once.
    entries.push_back({.fd = connection->is_closed() ? -1 : connection->fd(), .events = events, .revents = 0});
  }
  if (::poll(entries.data(), entries.size(), deadline.poll_timeout(most)) < 0 && errno != EINTR) throw_errno("poll");
  for (Connection* connection : connections) {
    connection->send_some();
    connection->receive_some();
  }
}

}  // namespace weft::detail
