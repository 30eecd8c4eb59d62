// Each rank of a communicator notes its calls where its peers can read them. Calls are compared as numbers
// (base/fingerprint.hpp), and a rank that finds a difference tells what the peer has called.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>

#include "base/call_words.hpp"
#include "fabric/origin.hpp"
#include "fabric/shared_memory.hpp"
#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

// One call: the number that ranks compare, and its words.
struct CallName {
  std::uint32_t fingerprint;
  CallWords words;
  bool counted = false;  // the upper half of its headers also has a hash of its counts
  // One of the call's launches, and the words say which: peers may ask how far this rank has got.
  bool part = false;
};

// Fingerprint of the newest part of a call in several launches. It stands for other words every time.
inline constexpr std::uint32_t kNewestPart = 0x54524150u;

// In memory that all ranks of a host share, and that release() leaves alone. A rank writes to its own part, and reads
// those of others at any time. Thread-safe. Channel and fingerprint of a call give eight places for it. The newest call
// takes the place of the one that was made longest ago.
class CallBoard {
 public:
  // Collective. If ranks share no memory, a rank only finds its own calls.
  static std::unique_ptr<CallBoard> create(Bootstrap& bootstrap);
  // Notes that this rank has left in peace: it has not died.
  ~CallBoard();
  CallBoard(const CallBoard&) = delete;
  CallBoard& operator=(const CallBoard&) = delete;

  bool is_shared() const { return memory_.size() != 0; }
  // Notes a call that is made now. Its words are only written if they are not there yet.
  void note(std::uint32_t channel, const CallName& call);
  // The same for a fingerprint that stands for other words every time.
  void note_anew(std::uint32_t channel, const CallName& call);
  // The call of `rank` on the channel that has this fingerprint, else the newest that differs from it in its counts.
  struct Match {
    CallWords words;
    bool other_counts;
  };
  std::optional<Match> find(int rank, std::uint32_t channel, std::uint32_t fingerprint) const;
  // The call that `rank` has noted last on the channel, with its fingerprint.
  std::optional<CallName> newest(int rank, std::uint32_t channel) const;
  bool has_left(int rank) const;

 private:
  struct Part;
  CallBoard(int rank, SharedMemoryWindow memory);
  Part& part(int rank) const;
  void note(std::uint32_t channel, const CallName& call, bool anew);

  Origin origin_;
  int rank_;
  SharedMemoryWindow memory_;
  std::unique_ptr<Part> own_;  // if ranks share no memory
  mutable std::mutex mutex_;   // guards the fields below, and this rank's part
  std::uint32_t notes_ = 0;
};

}  // namespace weft::detail
