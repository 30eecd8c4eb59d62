// What each rank of a communicator calls, in words, where its peers can read it: calls are compared as numbers
// (base/fingerprint.hpp), and whoever finds that two differ wants to know what the other one is.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "fabric/origin.hpp"
#include "fabric/shared_memory.hpp"
#include "rendezvous/bootstrap.hpp"

namespace weft::detail {

// One call in numbers and in words. The fingerprint is what ranks compare.
struct CallName {
  std::uint32_t fingerprint;
  std::string text;
  bool counted = false;  // headers have a hash of its counts in their upper half, too
};
// Whether a header's fingerprint is that of the call: 2 where it is, 1 where its counts are others, else 0.
int match(const CallName& call, std::uint32_t fingerprint);

// In memory that all ranks of a host share, and that release() leaves alone. A rank writes to its own part, in which
// the newest calls take the place of the oldest, and reads those of others at any time. Thread-safe.
class CallBoard {
 public:
  // Collective. Where ranks share no memory, nobody finds anything on it.
  static std::unique_ptr<CallBoard> create(Bootstrap& bootstrap);
  // Says that this rank has left in peace: it has not died.
  ~CallBoard();
  CallBoard(const CallBoard&) = delete;
  CallBoard& operator=(const CallBoard&) = delete;

  bool is_shared() const { return memory_.size() != 0; }
  // Number of the entry, from 1.
  std::uint64_t publish(std::uint32_t channel, const CallName& call);
  bool holds(std::uint64_t entry) const;
  // What `rank` has called on the channel.
  std::optional<std::string> find(int rank, std::uint32_t channel, std::uint32_t fingerprint) const;
  bool has_left(int rank) const;

 private:
  struct Part;
  CallBoard(int rank, SharedMemoryWindow memory) : rank_(rank), memory_(std::move(memory)) {}
  Part& part(int rank) const;

  Origin origin_;
  int rank_;
  SharedMemoryWindow memory_;
  mutable std::mutex mutex_;  // of what follows, and of this rank's part
  std::uint64_t published_ = 0;
};

}  // namespace weft::detail
