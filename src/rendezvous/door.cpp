#include "rendezvous/door.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "rendezvous/star.hpp"
#include "weft/error.hpp"

namespace weft::detail {
namespace {

using std::chrono::milliseconds;

constexpr std::size_t most_strangers = 64;  // connections without a proof that are kept at a time
constexpr int most_turned_away = 200;       // in a second; more have to wait
constexpr milliseconds breath(100);         // pause without admission when there are too many

struct Stranger {
  Connection connection;
  Bytes said = {};  // its hello, once said
  Hello hello = {};
  Nonce nonce = {};
};

// The connections that were not let in, in words and in numbers.
class Refusals {
 public:
  void count(std::string who) {
    last_ = std::move(who);
    ++all_;
    if (recent_ == 0 || Deadline::Clock::now() - since_ > std::chrono::seconds(1)) {
      since_ = Deadline::Clock::now();
      recent_ = 0;
    }
    ++recent_;
  }
  bool too_many() const {
    return recent_ >= most_turned_away && Deadline::Clock::now() - since_ <= std::chrono::seconds(1);
  }
  // Not a stranger: a rank that comes back.
  void mention(std::string who) { put_off_ = std::move(who); }
  std::string text() const {
    std::string text = put_off_.empty() ? "" : "; " + put_off_;
    if (all_ > 0) text += fmt::format("; {} was turned away", last_);
    if (all_ > 1) text += fmt::format(", and {} before it", all_ - 1);
    return text;
  }

 private:
  std::string last_, put_off_;
  long all_ = 0;
  int recent_ = 0;
  Deadline::Clock::time_point since_;
};

class Door {
 public:
  Door(const JoinArgs& args, const Deadline& deadline)
      : args_(args),
        deadline_(deadline),
        desk_({.place = args.desk.place, .name = args.name, .open = args.desk.open}),
        spare_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
        ranks_(static_cast<std::size_t>(args.world_size)) {}

  std::vector<Connection> admit_all() {
    while (!missing().empty()) {
      if (deadline_.passed()) {
        fail(too_late(joining, list_ranks(missing()), deadline_) + args_.remark + refusals_.text());
      }
      const bool open = is_open();
      wait(open);
      for (std::size_t r = 1; r < ranks_.size(); ++r) check_still_there(static_cast<int>(r));
      for (std::size_t i = strangers_.size(); i-- > 0;) hear(i);
      for (Visitor& visitor : desk_.handed_over()) {
        add(std::move(visitor.connection));
        if (hear_hello(strangers_.back(), std::move(visitor.hello))) strangers_.pop_back();
      }
      if (open) accept_some();
    }
    return std::move(ranks_);
  }

 private:
  std::vector<int> missing() const {
    std::vector<int> list;
    for (std::size_t r = 1; r < ranks_.size(); ++r) {
      if (ranks_[r].fd() < 0) list.push_back(static_cast<int>(r));
    }
    return list;
  }
  std::string missing_text() const { return missing().empty() ? "rank 0" : list_ranks(missing()); }

  bool is_open() const { return !refusals_.too_many() && Deadline::Clock::now() >= closed_until_; }

  void wait(bool open) {
    std::vector<Connection*> connections;
    for (Connection& peer : ranks_) connections.push_back(&peer);
    for (Stranger& stranger : strangers_) connections.push_back(&stranger.connection);
    move_some(connections, deadline_, {open ? desk_.listener() : -1, desk_.bell()},
              open ? milliseconds::max() : breath);
  }

  void check_still_there(int rank) {
    Connection& peer = ranks_[static_cast<std::size_t>(rank)];
    if (!peer.is_closed()) return;
    while (const std::optional<Frame> frame = peer.next_frame()) {
      if (frame->kind == FrameKind::failure) fail(frame->text);  // the rank gave up, and says why
    }
    fail(fmt::format("rendezvous '{}': rank {} disconnected", joining, rank));
  }

  // A few at a time, so that admitted ranks are heard in between. An accepted connection is read before another can
  // take its place: a rank says hello at once.
  void accept_some() {
    for (std::size_t i = 0; i < most_strangers && is_open(); ++i) {
      UniqueFd socket = accept();
      if (!socket) return;
      Stranger& stranger = add(Connection(std::move(socket)));
      stranger.connection.receive_some();
      hear(strangers_.size() - 1);
    }
  }

  // Empty if no connection waits, or if there is no descriptor for it.
  UniqueFd accept() {
    for (;;) {
      bool full = false;
      UniqueFd socket = accept_connection(desk_.listener(), &full);
      if (!full) return socket;
      if (strangers_.empty()) break;
      strangers_.erase(strangers_.begin());
    }
    // The connection would wait, and poll() would return at once, for ever. So it is taken in place of a spare
    // descriptor, and closed. A rank tries again.
    refusals_.count("a connection for which this process had no file descriptor");
    spare_.reset();
    bool full = false;
    accept_connection(desk_.listener(), &full).reset();
    spare_ = UniqueFd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    closed_until_ = Deadline::Clock::now() + breath;
    return {};
  }

  Stranger& add(Connection connection) {
    if (strangers_.size() == most_strangers) {
      // The stranger that has been silent longest; if all have spoken, the one that has been without proof longest.
      auto leaver = strangers_.begin();
      while (leaver != strangers_.end() && !leaver->said.empty()) ++leaver;
      strangers_.erase(leaver != strangers_.end() ? leaver : strangers_.begin());
    }
    connection.set_frame_limit(stranger_limit);
    return strangers_.emplace_back(Stranger{.connection = std::move(connection)});
  }

  void hear(std::size_t index) {
    Stranger& stranger = strangers_[index];
    if (is_done_with(stranger)) strangers_.erase(strangers_.begin() + static_cast<std::ptrdiff_t>(index));
  }

  // True when the list of strangers need not keep it: it has left, was turned away, or was handed on.
  bool is_done_with(Stranger& stranger) {
    std::optional<Frame> frame = stranger.connection.next_frame();
    if (stranger.connection.is_garbled()) {
      return turn_away(stranger, "a stranger who sends " + stranger.connection.garbage(),
                       "rank 0 at this port expects something else than " + stranger.connection.garbage());
    }
    if (!frame) return stranger.connection.is_closed();
    if (frame->kind == FrameKind::hello && stranger.said.empty()) return hear_hello(stranger, std::move(frame->body));
    if (frame->kind == FrameKind::proof && !stranger.said.empty()) return hear_proof(stranger, frame->body);
    return turn_away(stranger, "a stranger who does not say hello", "rank 0 at this port expects another frame");
  }

  bool turn_away(Stranger& stranger, std::string who, std::string_view answer) {
    refusals_.count(std::move(who));
    stranger.connection.queue(FrameKind::failure, answer);
    stranger.connection.send_some();
    return true;
  }

  bool hear_hello(Stranger& stranger, Bytes said) {
    std::optional<Hello> hello = read_hello(said);
    if (!hello)
      return turn_away(stranger, "a stranger with a wrong hello", "rank 0 at this port expects another hello");
    if (hello->job != args_.job) {
      // Left over from another job or on its way to one. It is no fault, as long as the job's own ranks come.
      return turn_away(stranger, fmt::format("a rank {} of another job (other id)", hello->rank),
                       "rank 0 at this port belongs to another job (its id differs)");
    }
    if (hello->name != args_.name && desk_.shared()) return send_on(stranger, *hello, std::move(said));
    stranger.said = std::move(said);
    stranger.hello = std::move(*hello);
    stranger.nonce = random_nonce();
    stranger.connection.queue(FrameKind::challenge, joining, stranger.nonce);
    stranger.connection.send_some();
    return false;
  }

  // Sends it to the meeting of that name, if this process holds one here; else the rank must come back.
  bool send_on(Stranger& stranger, const Hello& hello, Bytes said) {
    Visitor visitor{.connection = std::move(stranger.connection), .hello = std::move(said)};
    if (desk_.hand_over(hello.name, visitor)) return true;
    const std::string name = printable(hello.name);
    refusals_.mention(fmt::format("a rank {} that creates communicator '{}' was told to come back", hello.rank, name));
    visitor.connection.queue(FrameKind::again,
                             fmt::format("rank 0 creates communicator '{}' there, and no '{}' yet", args_.name, name));
    visitor.connection.send_some();
    return true;
  }

  bool hear_proof(Stranger& stranger, std::span<const std::byte> bytes) {
    const Hello& hello = stranger.hello;
    if (!proves(bytes, proof_of(args_.key, Role::rank, stranger.said, stranger.nonce))) {
      return turn_away(stranger, fmt::format("a rank {} that knows another secret", hello.rank),
                       "rank 0 at this port knows another secret (WEFT_SECRET differs?)");
    }
    check_world(hello);
    Connection& place = ranks_[static_cast<std::size_t>(hello.rank)];
    if (place.fd() >= 0) fail(fmt::format("two processes say they are rank {}", hello.rank));
    place = std::move(stranger.connection);
    place.set_frame_limit(Connection::default_frame_limit);
    place.queue(FrameKind::welcome, missing_text(), proof_of(args_.key, Role::rank_0, stranger.said, stranger.nonce));
    for (Connection& peer : ranks_) peer.queue(FrameKind::waiting, missing_text());
    for (Connection& peer : ranks_) peer.send_some();
    return true;
  }

  // Checks what a rank of this job says about the world.
  void check_world(const Hello& hello) {
    if (hello.build != args_.build) {
      fail(fmt::format("ranks have different builds: rank 0 has {}, rank {} has {}", args_.build, hello.rank,
                       printable(hello.build)));
    }
    if (hello.name != args_.name) {
      fail(fmt::format("ranks disagree about Config::name: rank 0 says '{}', rank {} says '{}'", args_.name, hello.rank,
                       printable(hello.name)));
    }
    if (hello.world_size != args_.world_size) {
      fail(fmt::format("ranks disagree about the world size: rank 0 says {}, rank {} says {}", args_.world_size,
                       hello.rank, hello.world_size));
    }
    if (hello.rank < 1 || hello.rank >= args_.world_size) {
      fail(fmt::format("a second process says it is rank {}; others than rank 0 are 1 … {}", hello.rank,
                       args_.world_size - 1));
    }
  }

  // Tells all ranks and strangers.
  [[noreturn]] void fail(const std::string& message) {
    const auto tell = [&](Connection& connection) {
      connection.queue(FrameKind::failure, message);
      connection.send_some();
    };
    for (Connection& rank : ranks_) tell(rank);
    for (Stranger& stranger : strangers_) tell(stranger.connection);
    throw Error(Errc::rendezvous, message);
  }

  const JoinArgs& args_;
  const Deadline& deadline_;
  Desk desk_;
  UniqueFd spare_;
  std::vector<Connection> ranks_;
  std::vector<Stranger> strangers_;
  Refusals refusals_;
  Deadline::Clock::time_point closed_until_;
};

}  // namespace

std::vector<Connection> admit_all(const JoinArgs& args, const Deadline& deadline) {
  return Door(args, deadline).admit_all();
}

}  // namespace weft::detail
