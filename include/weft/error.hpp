// How Weft says that something went wrong.
//
// Two kinds of trouble are kept apart. A call that is *rejected* (a bad argument) throws before anything was sent.
// Where all ranks reject it, nothing has happened, and the next call works. Where some do, and do not mend it at once,
// those that wait for them in that call end with mismatch and the reason. (By their deadlines they end where nothing is
// told: where NCCL serves the group, and where a call is recorded or captured.) A call that *fails* (a peer is late,
// dead, or called something else) poisons the communicator on every rank: all later calls, captured graphs included,
// end at once with the same record.
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
  peer_died,         // the process of `peer` is gone (found by CPU ranks in a call, by all where status() is asked)
  peer_failed,       // another rank, `reporter`, found a failure and ended the communicator
  aborted,           // abort() was called, here or on `peer`
  overlap,           // two calls of one group ran at the same time, on unordered streams or in two threads; or a graph
                     // sent twice without a wait between, or waited for what was not sent
  released,          // the communicator's memory is released (release() without acquire())
  rendezvous,        // creation failed: ranks did not meet, or disagree about the world
  unsupported,       // this build, this machine or a child of fork() cannot do it; the message says what is missing
  system,            // the operating system, CUDA or NCCL refused a call
  in_flight,         // a dispatch takes a generation whose combine was not called, or a send comes before the wait for
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

// What is known about a failed call.
struct Fault {
  Errc code = Errc::ok;
  int rank = -1;                   // the rank that wrote this record
  int peer = -1;                   // world rank of who is to blame: late, dead, or different; −1: no single one is
                                   // known. On every rank the same, but where ranks found faults of their own
  int reporter = -1;               // peer_failed: the rank that found it, and …
  Errc reported = Errc::ok;        // … as what; it knows more
  std::uint32_t epoch_wanted = 0;  // number of the call that failed; of those that NCCL served, if it did
  std::uint32_t epoch_seen = 0;    // the newest call that `peer` was seen to have entered
  std::string operation;           // the call that failed, e.g. "all_reduce sum bf16[8192] one-shot tag 0"
  std::string theirs;              // mismatch: what `peer` has called, in words where ranks share a host; else empty
  std::string reason;  // capacity and overflow: which number does not fit, and what would; of NCCL's faults its words
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
