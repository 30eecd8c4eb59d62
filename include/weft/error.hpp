// Errors: Weft's words for what went wrong.
//
// There are two kinds of errors. A call that is *rejected* (a bad argument) throws before anything was sent. If all
// ranks reject it, nothing has happened, and the next call works. If only some ranks reject it, they must make the
// right call at once. Otherwise the ranks that wait for them in that call end with mismatch and the reason. (If NCCL
// serves the group, or if the call is recorded or captured, nothing is told to them: they end by their deadlines.) A
// call that *fails* (a peer is late, dead, or called something else) poisons the communicator on every rank: all later
// calls, captured graphs included, end at once with the same record.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace weft {

enum class Errc : std::uint32_t {
  ok = 0,            // nothing happened
  invalid_argument,  // rejected: an argument is outside its range; the message has its name, value and range
  timeout,           // a wait outlasted the deadline: `peer` is late, stopped, or never made this call
  mismatch,          // `peer` made a different call (operation, type, count, algorithm or tag), found other counts, has
                     // outputs elsewhere in symmetric memory, or rejected the call
  peer_died,         // the process of `peer` is gone (CPU ranks find it in a call, all ranks in status())
  peer_failed,       // another rank, `reporter`, found a failure and ended the communicator
  aborted,           // abort() was called, here or on `peer`
  overlap,           // two calls of one group ran at the same time, on unordered streams or in two threads; or a graph
                     // sent twice without a wait between, or waited for what was not sent
  released,          // the communicator's memory is released (release() without acquire())
  rendezvous,        // creation failed: ranks did not meet, or disagree about the world
  unsupported,       // this build, this machine or a child of fork() cannot do it; the message says what is missing
  system,            // the operating system, CUDA or NCCL refused a call
  in_flight,         // a dispatch takes a handle slot whose combine was not called, or a send comes before the wait for
                     // the one before it: one too many at a time
  overflow,          // an expert has no room for all its rows (weft::Overflow::error)
  capacity,          // counts on the device are negative, or more than a call has room for
};

constexpr std::string_view name(Errc code) {
  constexpr std::string_view names[] = {"ok",          "invalid argument", "timeout",   "mismatch", "peer died",
                                        "peer failed", "aborted",          "overlap",   "released", "rendezvous",
                                        "unsupported", "system",           "in flight", "overflow", "capacity"};
  return names[static_cast<int>(code)];
}

// The record of a failed call.
struct Fault {
  Errc code = Errc::ok;
  int rank = -1;                   // the rank that wrote this record
  int peer = -1;                   // world rank to blame: late, dead, or different; −1: no single one is
                                   // known. The same on every rank, unless ranks found faults of their own
  int reporter = -1;               // peer_failed: the rank that found it, and …
  Errc reported = Errc::ok;        // … as what; it knows more
  std::uint32_t epoch_wanted = 0;  // number of the call that failed; if NCCL served it, among NCCL's
  std::uint32_t epoch_seen = 0;    // the newest call that `peer` was seen to have entered
  std::string operation;           // the call that failed, e.g. "all_reduce sum bf16[8192] one-shot tag 0"
  std::string theirs;              // mismatch: the call of `peer`, in words if ranks share a host; else empty
  std::string reason;  // capacity, overflow: the number that does not fit, and its limit; NCCL's faults: its words;
                       // timeout, peer_died, peer_failed: the round that `peer` enqueued last, or why it rejected a
                       // call, if ranks share a host. Replays are not noted: it may be of the captured call
};

// The only exception type that Weft throws.
class Error : public std::runtime_error {
 public:
  Error(Errc code, const std::string& message) : std::runtime_error(message) { fault_.code = code; }
  Error(Fault fault, const std::string& message) : std::runtime_error(message), fault_(std::move(fault)) {}

  Errc code() const noexcept { return fault_.code; }
  const Fault& fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

}  // namespace weft
