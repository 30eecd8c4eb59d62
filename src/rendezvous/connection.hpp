// Frames over a stream socket, without ever blocking: what is sent waits in a queue, what arrives is put together.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rendezvous/bootstrap.hpp"
#include "rendezvous/deadline.hpp"
#include "rendezvous/unique_fd.hpp"

namespace weft::detail {

enum class FrameKind : std::uint32_t {
  hello = 1,     // who has connected (hello.hpp)
  contribution,  // to rank 0: a rank's part of a meeting
  waiting,       // from rank 0: whom it still waits for
  result,        // from rank 0: everybody's part
  failure,       // either way: the meeting is over, and why
  challenge,     // from rank 0, to who said hello
  proof,         // to rank 0: the answer
  welcome,       // from rank 0: its own proof, and in words whom it still waits for
  again          // from rank 0: it is not ready for this rank, and why
};

struct Frame {
  FrameKind kind{};
  std::string text;  // the meeting's name, or a message
  Bytes body;
};

class Connection {
 public:
  Connection() = default;  // not connected, like the place of this rank itself
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  void queue(FrameKind kind, std::string_view text, std::span<const std::byte> body = {});
  bool all_sent() const { return output_.empty() || !writable_; }
  // Sends what the peer takes now. A peer that is gone is no error here: its last words may still wait to be read.
  void send_some();
  // Reads what is there now.
  void receive_some();
  // The next complete frame.
  std::optional<Frame> next_frame();
  // The peer is gone, and so is all it said (after next_frame() came back empty).
  bool is_closed() const { return !readable_; }
  // What arrives are no frames of this build, and garbage() says what it is instead.
  bool is_garbled() const { return !garbage_.empty(); }
  const std::string& garbage() const { return garbage_; }

  // Longer texts are cut when they are sent, and refused when they come.
  static constexpr std::size_t most_text = 4096;
  static constexpr std::uint64_t default_frame_limit = std::uint64_t{1} << 30;
  // A peer that has not said who it is must not make us store much.
  void set_frame_limit(std::uint64_t bytes) { frame_limit_ = bytes; }
  int fd() const { return socket_.get(); }

 private:
  UniqueFd socket_;
  Bytes output_, input_;
  std::uint64_t frame_limit_ = default_frame_limit;
  std::string garbage_;
  bool readable_ = true, writable_ = true;
};

// Waits until something moved on a connection, or one of `others` is readable, and moves it; at most for `most`.
void move_some(std::span<Connection* const> connections, const Deadline& deadline,
               std::initializer_list<int> others = {},
               std::chrono::milliseconds most = std::chrono::milliseconds::max());

}  // namespace weft::detail
