// Frames over a stream socket, without ever blocking: frames to send wait in a queue, received bytes are put together.
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
  hello = 1,     // the rank that has connected (hello.hpp)
  contribution,  // to rank 0: a rank's part of a meeting
  waiting,       // from rank 0: the ranks that it still waits for
  result,        // from rank 0: all ranks' parts
  failure,       // either way: the meeting is over, and the reason
  challenge,     // from rank 0: its reply to a hello
  proof,         // to rank 0: the answer
  welcome,       // from rank 0: its own proof, and in words the ranks that it still waits for
  again          // from rank 0: it is not ready for this rank, and the reason
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
  // Sends as much as the peer takes now. A closed peer is no error here: its last words may still wait to be read.
  void send_some();
  // Reads the bytes that are there now.
  void receive_some();
  // The next complete frame.
  std::optional<Frame> next_frame();
  // The peer is gone, and so are all its frames (after next_frame() came back empty).
  bool is_closed() const { return !readable_; }
  // The received bytes are no frames of this build; garbage() says what they are instead.
  bool is_garbled() const { return !garbage_.empty(); }
  const std::string& garbage() const { return garbage_; }

  // Longer texts are cut when sent, and refused when received.
  static constexpr std::size_t most_text = 4096;
  static constexpr std::uint64_t default_frame_limit = std::uint64_t{1} << 30;
  // A peer must say its rank before we store much for it.
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
